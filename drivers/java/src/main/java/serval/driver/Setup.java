package serval.driver;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** What stores whose clients have servers do before the first operation. */
public final class Setup {
  /** Keys of YCSB's workloads with hashed keys lie between user1000 and user9999, as its instructions for splits have it. */
  private static final long SPLITS_FROM = 1000;
  private static final long SPLITS_TO = 9999;

  private Setup() {}

  /**
   * Does something on a thread of its own and waits for it no longer than so many milliseconds: client libraries look for
   * servers that are not there for minutes, or without an end. Throws what it throws.
   */
  public static <T> T within(long milliseconds, Callable<T> something) throws Exception {
    FutureTask<T> task = new FutureTask<>(something);
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

  /** The keys at which a table is split into so many parts; none for one part. */
  public static List<String> splits(int parts) {
    List<String> splits = new ArrayList<>();
    for (int i = 1; i < parts; i++) {
      splits.add("user" + (SPLITS_FROM + i * (SPLITS_TO - SPLITS_FROM) / parts));
    }
    return splits;
  }
}
