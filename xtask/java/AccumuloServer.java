import java.io.File;
import org.apache.accumulo.minicluster.MemoryUnit;
import org.apache.accumulo.minicluster.MiniAccumuloCluster;
import org.apache.accumulo.minicluster.MiniAccumuloConfig;

/**
 * An Accumulo of one tablet server on loopback: ZooKeeper, manager, collector and tablet server, each a JVM that goes with this
 * one. Arguments: an empty folder, ZooKeeper's port, root's password. Says "serval: ready", and runs until it is
 * killed.
 */
public final class AccumuloServer {
  public static void main(String[] arguments) throws Exception {
    MiniAccumuloConfig config = new MiniAccumuloConfig(new File(arguments[0]), arguments[2]);
    config.setInstanceName("serval").setNumTservers(1).setZooKeeperPort(Integer.parseInt(arguments[1]));
    config.setDefaultMemory(128, MemoryUnit.MEGABYTE);
    MiniAccumuloCluster cluster = new MiniAccumuloCluster(config);
    // Before the start: a start that is broken off leaves no JVMs either.
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      try {
        cluster.stop();
      } catch (Exception gone) {
        System.err.println(gone);
      }
    }));
    cluster.start();
    System.out.println("serval: ready");
    Thread.currentThread().join();
  }
}
