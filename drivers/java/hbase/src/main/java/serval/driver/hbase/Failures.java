package serval.driver.hbase;

import java.io.IOException;
import org.apache.hadoop.hbase.DoNotRetryIOException;
import org.apache.hadoop.hbase.TableNotFoundException;
import org.apache.hadoop.hbase.client.RetriesExhaustedException;
import org.apache.hadoop.hbase.client.RetriesExhaustedWithDetailsException;
import org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException;
import org.apache.hadoop.hbase.security.AccessDeniedException;
import serval.driver.Client.Outcome;
import serval.driver.Client.Status;
import serval.driver.Words;

/** What HBase's exceptions mean to a run. */
final class Failures {
  private Failures() {}

  static Outcome outcome(Throwable error) {
    Throwable cause = cause(error);
    return Outcome.of(status(cause), Words.of(cause));
  }

  /** What made the tries fail that HBase's client has given up. */
  private static Throwable cause(Throwable error) {
    Throwable cause = error;
    while (true) {
      Throwable deeper = cause instanceof RetriesExhaustedWithDetailsException details && details.getNumExceptions() > 0
          ? details.getCause(0)
          : cause.getCause();
      boolean says = cause instanceof DoNotRetryIOException || cause instanceof IllegalArgumentException;
      if (says || deeper == null || deeper == cause) {
        return cause;
      }
      cause = deeper;
    }
  }

  private static Status status(Throwable error) {
    if (error instanceof AccessDeniedException) {
      return Status.FORBIDDEN;
    }
    // Keys and values too long, records without fields.
    if (error instanceof IllegalArgumentException || error instanceof NoSuchColumnFamilyException
        || error instanceof TableNotFoundException) {
      return Status.BAD_REQUEST;
    }
    if (error instanceof DoNotRetryIOException && !(error instanceof RetriesExhaustedException)) {
      return isOfZooKeeper(error) ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
    }
    // Servers that are gone, do not answer, or are too busy.
    return error instanceof IOException ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
  }

  /** HBase's client has no type for a ZooKeeper that it cannot reach, only these words. */
  private static boolean isOfZooKeeper(Throwable error) {
    return String.valueOf(error.getMessage()).contains("Zookeeper");
  }
}
