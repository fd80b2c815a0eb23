import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * FOLDER NODES: HDFS with one data node, and YARN with NODES node managers, in one JVM. FOLDER must be new; FOLDER/conf
 * gets what clients read. Commands on stdin, answered by a line "done: COMMAND": stop-node N, stop-data, start-data, end.
 */
public final class YarnCluster {
  public static void main(String[] words) throws Exception {
    try {
      run(Path.of(words[0]).toAbsolutePath(), Integer.parseInt(words[1]));
      System.exit(0);
    } catch (Throwable failed) { // other threads would keep the JVM alive
      failed.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(Path folder, int nodes) throws Exception {
    Configuration conf = options(folder);
    MiniDFSCluster hdfs = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
    hdfs.waitActive();
    conf.set("fs.defaultFS", hdfs.getURI().toString());
    MiniYARNCluster yarn = new MiniYARNCluster("quotaplane", 1, nodes, 1, 1);
    yarn.init(conf);
    yarn.start();
    Configuration made = yarn.getConfig();
    made.unset("net.topology.node.switch.mapping.impl"); // a class of the mini cluster
    Files.createDirectories(folder.resolve("conf"));
    for (String name : List.of("core-site.xml", "hdfs-site.xml", "yarn-site.xml")) {
      try (OutputStream file = Files.newOutputStream(folder.resolve("conf").resolve(name))) {
        made.writeXml(file);
      }
    }
    System.out.println("serves " + made.get("fs.defaultFS"));
    obey(hdfs, yarn);
  }

  private static void obey(MiniDFSCluster hdfs, MiniYARNCluster yarn) throws Exception {
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    MiniDFSCluster.DataNodeProperties data = null;
    for (String line; (line = commands.readLine()) != null && !line.equals("end"); ) {
      String[] command = line.split(" ");
      switch (command[0]) {
        case "stop-node" -> yarn.getNodeManager(Integer.parseInt(command[1])).stop();
        case "stop-data" -> data = hdfs.stopDataNode(0);
        case "start-data" -> {
          hdfs.restartDataNode(data, true);
          hdfs.waitActive();
        }
        default -> throw new IllegalArgumentException(line);
      }
      System.out.println("done: " + line);
    }
  }

  private static Configuration options(Path folder) {
    for (String name : List.of("test.build.data", "test.build.dir")) {
      System.setProperty(name, folder.resolve("data").toString());
    }
    Configuration conf = new YarnConfiguration();
    conf.set("hdfs.minidfs.basedir", folder.resolve("hdfs").toString());
    conf.set("yarn.nodemanager.resource.memory-mb", "4096");
    conf.set("yarn.nodemanager.resource.cpu-vcores", "8");
    conf.set("yarn.scheduler.minimum-allocation-mb", "128");
    conf.set("yarn.nodemanager.vmem-check-enabled", "false");
    conf.set("yarn.nodemanager.pmem-check-enabled", "false");
    conf.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    String queues = "yarn.scheduler.capacity.";
    conf.set(queues + "maximum-am-resource-percent", "1.0");
    conf.set(queues + "root.queues", "default");
    conf.set(queues + "root.default.capacity", "100");
    conf.set(queues + "root.default.maximum-am-resource-percent", "1.0");
    conf.set("yarn.resourcemanager.am.max-attempts", "4");
    // YARN's default is 600 s, for which a lost node's executors are waited for
    conf.set("yarn.nm.liveness-monitor.expiry-interval-ms", "20000");
    conf.set("yarn.am.liveness-monitor.expiry-interval-ms", "120000");
    conf.set("yarn.nodemanager.delete.debug-delay-sec", "600"); // tests read what containers printed
    conf.set("yarn.nodemanager.user-home-dir", "/proc/nobody"); // nobody, root included, can write there
    conf.set("yarn.minicluster.fixed.ports", "false");
    conf.set("yarn.application.classpath", "");
    return conf;
  }
}
