package runners

import (
	"context"

	jobpb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/jobmanagement_v1"
	"google.golang.org/grpc"
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

// giveOptions gives flinkOptions to the jobs of gRPC's clients that are made until it is
// over.
func giveOptions() (over func()) {
	addDialOptions.(func(...grpc.DialOption))(grpc.WithChainUnaryInterceptor(addOptions))
	return clearDialOptions
}

func addOptions(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if job, ok := req.(*jobpb.PrepareJobRequest); ok {
		for name, value := range flinkOptions {
			job.PipelineOptions.Fields[name] = structpb.NewStringValue(value)
		}
	}
	return call(ctx, method, req, reply, cc, opts...)
}
