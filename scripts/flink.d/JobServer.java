import org.apache.beam.model.pipeline.v1.RunnerApi;
import org.apache.beam.runners.flink.FlinkJobInvoker;
import org.apache.beam.runners.flink.FlinkJobServerDriver;
import org.apache.beam.runners.jobsubmission.JobInvocation;
import org.apache.beam.sdk.io.FileSystems;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Struct;
import org.apache.beam.vendor.grpc.v1p69p0.com.google.protobuf.Value;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.ListeningExecutorService;

/**
 * Beam's job server for Flink, with two changes. Beam's own main asks for Google Cloud's jars and
 * uploads its whole class path with every job (20 s); the cluster here has these jars already. And
 * a property -Dbeam.NAME=VALUE becomes the pipeline option NAME of every job, in place of the
 * launcher's, for the Go SDK has no flag for such options.
 */
public class JobServer {
  private static final String PREFIX = "beam.";

  public static void main(String[] args) throws Exception {
    System.setProperty("java.class.path", ""); // what a job uploads
    FileSystems.setDefaultPipelineOptions(PipelineOptionsFactory.create());
    FlinkJobServerDriver.FlinkServerConfiguration config = FlinkJobServerDriver.parseArgs(args);
    FlinkJobServerDriver.fromConfig(config, () -> new Invoker(config)).run();
  }

  private static class Invoker extends FlinkJobInvoker {
    Invoker(FlinkJobServerDriver.FlinkServerConfiguration config) {
      super(config);
    }

    @Override
    protected JobInvocation invokeWithExecutor(
        RunnerApi.Pipeline pipeline, Struct options, String token, ListeningExecutorService executor) {
      Struct.Builder all = options.toBuilder();
      for (String property : System.getProperties().stringPropertyNames()) {
        if (property.startsWith(PREFIX)) {
          String name = "beam:option:" + property.substring(PREFIX.length()) + ":v1";
          all.putFields(name, Value.newBuilder().setStringValue(System.getProperty(property)).build());
        }
      }
      try {
        return super.invokeWithExecutor(pipeline, all.build(), token, executor);
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }
}
