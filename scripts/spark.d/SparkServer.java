import java.io.File;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.beam.runners.spark.SparkJobServerDriver;
import org.apache.beam.sdk.io.FileSystems;
import org.apache.beam.sdk.options.PipelineOptionsFactory;

/**
 * Beam's job server for Spark, whose own main asks for Google Cloud's jars and sends its whole
 * class path along with every job. What a Spark has itself stays here.
 */
public class SparkServer {
  private static final String SPARKS =
      "(spark-|hadoop-|scala-|rocksdbjni|netty-|orc-|parquet-|arrow-|jersey-|zookeeper|curator-|hive-|log4j-).*";

  public static void main(String[] args) throws Exception {
    boolean local = Arrays.stream(args).anyMatch(a -> a.startsWith("--spark-master-url=local"));
    String sent =
        Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
            .filter(jar -> !local && !new File(jar).getName().matches(SPARKS))
            .collect(Collectors.joining(File.pathSeparator));
    System.setProperty("java.class.path", sent);
    FileSystems.setDefaultPipelineOptions(PipelineOptionsFactory.create());
    SparkJobServerDriver.fromParams(args).run();
  }
}
