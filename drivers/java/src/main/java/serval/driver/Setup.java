package serval.driver;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Helpers for stores with servers, for use before the first operation. */
public final class Setup {
  /** Range of the hashed keys of YCSB's workloads, as in its instructions for splits: user1000 to user9999. */
  private static final long SPLITS_FROM = 1000;
  private static final long SPLITS_TO = 9999;

  private Setup() {}

  /**
   * Calls a function on a thread of its own, with a time limit: client libraries search for unreachable servers for minutes or
   * for ever. Throws the function's exceptions, and TimeoutException.
   */
  public static <T> T within(long milliseconds, Callable<T> function) throws Exception {
    FutureTask<T> task = new FutureTask<>(function);
    Thread thread = Driver.daemon("connect", task);
    thread.start();
    try {
      return task.get(milliseconds, TimeUnit.MILLISECONDS);
    } catch (TimeoutException late) {
      thread.interrupt();
      throw late;
    } catch (ExecutionException error) {
      throw error.getCause() instanceof Exception cause ? cause : error;
    }
  }

  /** Returns the keys that split a table into {@code parts} parts; none for one part. */
  public static List<String> splits(int parts) {
    List<String> splits = new ArrayList<>();
    for (int i = 1; i < parts; i++) {
      splits.add("user" + (SPLITS_FROM + i * (SPLITS_TO - SPLITS_FROM) / parts));
    }
    return splits;
  }
}
