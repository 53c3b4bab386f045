package site.ycsb;

import java.io.PrintWriter;
import java.nio.file.Path;
import java.text.DecimalFormat;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import site.ycsb.measurements.OneMeasurement;
import site.ycsb.measurements.OneMeasurementHdrHistogram;

/** Prints how Java and YCSB write numbers, times and maps. */
public class Formats {
  public static void main(String[] args) throws Exception {
    Path dir = Path.of(args[0]);
    Random random = new Random(1);
    List<Double> values = new ArrayList<>(List.of(0.0, -0.0, 1.0, 0.5, 0.1, 1e-3, 9.99e-4, 1.234e-5, 1e7, 9999999.0,
        9999999.999, 12345678.9, 1e21, 1e22, 123456789012345680.0, 14285.714285714286, 100.0 / 3, Double.NaN,
        Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, -5.25, -1e-9, 0.125, 0.375, 2.5, 0.135, 0.145, 1.005,
        0.005, 0.015, 0.995, 999.995, Double.MAX_VALUE));
    for (int i = 0; i < 150; i++) {
      values.add(random.nextInt(1000000) / (double) (1 + random.nextInt(5000)));
      values.add(Math.exp(random.nextDouble() * 40 - 15));
      values.add(random.nextInt(1000000) / 1000.0);
    }
    DecimalFormat d = new DecimalFormat("#.##");
    try (PrintWriter out = new PrintWriter(dir.resolve("doubles.txt").toFile(), "UTF-8")) {
      for (double v : values) {
        out.printf("%016x %s %s%n", Double.doubleToRawLongBits(v), v, d.format(v));
      }
    }
    try (PrintWriter out = new PrintWriter(dir.resolve("remaining.txt").toFile(), "UTF-8")) {
      for (long s : new long[] {0, 1, 9, 10, 59, 60, 61, 119, 120, 3599, 3600, 3601, 3660, 7200, 7325, 86399, 86400,
          86401, 90000, 90060, 172800, 180000, Long.MAX_VALUE}) {
        out.println(s + "|" + RemainingFormatter.format(s));
      }
    }
    String[] verbs = {"READ", "UPDATE", "INSERT", "SCAN", "DELETE", "VERIFY", "READ-MODIFY-WRITE",
        "SCAN-LATENCY-PER-RECORD", "INSERT-BATCH", "CLEANUP"};
    try (PrintWriter out = new PrintWriter(dir.resolve("maps.txt").toFile(), "UTF-8")) {
      for (int n = 0; n < 100; n++) {
        // As a run does: the names come in some order, failures after successes or before.
        Map<String, Integer> map = new ConcurrentHashMap<>();
        List<String> names = new ArrayList<>();
        int share = 1 + random.nextInt(6);
        for (String verb : verbs) {
          if (random.nextInt(6) >= share) {
            continue;
          }
          names.add(verb);
          for (String status : new String[] {"FAILED", "ERROR", "NOT_FOUND"}) {
            if (random.nextInt(8) < share) {
              names.add(verb + "-" + status);
            }
          }
        }
        names.forEach(name -> map.put(name, 0));
        out.println(String.join(" ", names) + "|" + String.join(" ", map.keySet()));
      }
    }
    Properties p = new Properties();
    try (PrintWriter out = new PrintWriter(dir.resolve("summaries.txt").toFile(), "UTF-8")) {
      OneMeasurement m = new OneMeasurementHdrHistogram("READ", p);
      for (int[] us : new int[][] {{}, {5}, {1, 2}, {1, 2, 2}, {}, {100, 200, 300, 1000, 7}}) {
        for (int v : us) {
          m.measure(v);
        }
        StringJoiner joined = new StringJoiner(",");
        for (int v : us) {
          joined.add(Integer.toString(v));
        }
        out.println(joined + "|" + m.getSummary());
      }
    }
  }
}
