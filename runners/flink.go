package runners

import (
	"context"
	"math"
	"time"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	beamrunners "github.com/apache/beam/sdks/v2/go/pkg/beam/runners"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/util/grpcx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
)

// flinkOptions are what each job of Flink's takes along, for which Beam's Go has no
// flag. Beam passes on what was reshuffled at a checkpoint, so a watch needs them. And
// the job server keeps the options of each job under their number for good, 0.2 MB of
// memory, unless all have one.
var flinkOptions = map[string]string{
	"beam:option:checkpointing_interval:v1": "2000", // ms
	"beam:option:options_id:v1":             "1",
}

func init() { grpcx.Dial = dial }

// dial is grpcx.DefaultDial, but that jobs of Flink's get flinkOptions.
func dial(ctx context.Context, endpoint string, timeout time.Duration) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cc, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)), grpc.WithUnaryInterceptor(addOptions))
	if err != nil {
		return nil, err
	}
	cc.Connect()
	for s := cc.GetState(); s != connectivity.Ready; s = cc.GetState() {
		if !cc.WaitForStateChange(ctx, s) {
			cc.Close()
			return nil, ctx.Err()
		}
	}
	return cc, nil
}

func addOptions(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if job, ok := req.(*jobpb.PrepareJobRequest); ok && *beamrunners.Runner == Flink {
		for name, value := range flinkOptions {
			job.PipelineOptions.Fields[name] = structpb.NewStringValue(value)
		}
	}
	return call(ctx, method, req, reply, cc, opts...)
}
