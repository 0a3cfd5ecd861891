import org.apache.beam.runners.spark.SparkJobServerDriver;
import org.apache.beam.sdk.io.FileSystems;
import org.apache.beam.sdk.options.PipelineOptionsFactory;

/**
 * Beam's job server for Spark, whose own main asks for Google Cloud's jars and sends its whole
 * class path along with every job. Of spark-submit's it is what --jars has.
 */
public class SparkServer {
  public static void main(String[] args) throws Exception {
    System.setProperty("java.class.path", "");
    FileSystems.setDefaultPipelineOptions(PipelineOptionsFactory.create());
    SparkJobServerDriver.fromParams(args).run();
  }
}
