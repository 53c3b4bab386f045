import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HBaseTestingUtility;
import org.apache.hadoop.hbase.StartMiniClusterOption;

/**
 * ZooKeeper, a master and a region server of HBase in one JVM, on loopback, with files below the working directory.
 * The argument is ZooKeeper's port. Says "serval: ready" once tables can be made, and runs until it is killed.
 */
public final class HBaseServer {
  public static void main(String[] arguments) throws Exception {
    Configuration configuration = HBaseConfiguration.create();
    configuration.setInt("test.hbase.zookeeper.property.clientPort", Integer.parseInt(arguments[0]));
    for (String role : new String[] {"master", "regionserver"}) {
      // No web pages; any port.
      configuration.setInt("hbase." + role + ".info.port", -1);
      configuration.setInt("hbase." + role + ".port", 0);
      configuration.set("hbase." + role + ".ipc.address", "127.0.0.1");
    }
    configuration.set("hbase.unsafe.regionserver.hostname", "localhost");
    // A local folder is no HDFS: nothing is promised to survive a crash.
    configuration.setBoolean("hbase.unsafe.stream.capability.enforce", false);
    configuration.set("hbase.wal.provider", "filesystem");
    configuration.setInt("hbase.regionserver.handler.count", 10);
    configuration.setInt("hbase.regionserver.metahandler.count", 3);
    HBaseTestingUtility cluster = new HBaseTestingUtility(configuration);
    cluster.startMiniZKCluster();
    cluster.getTestFileSystem();
    cluster.createRootDir();
    cluster.startMiniHBaseCluster(StartMiniClusterOption.builder().numRegionServers(1).build());
    System.out.println("serval: ready");
    Thread.currentThread().join();
  }
}
