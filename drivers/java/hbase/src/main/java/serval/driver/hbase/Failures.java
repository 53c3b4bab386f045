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
import serval.driver.ErrorText;

/** Maps HBase's exceptions to statuses of the protocol. */
final class Failures {
  private Failures() {}

  static Outcome outcome(Throwable error) {
    Throwable cause = cause(error);
    return Outcome.of(status(cause), ErrorText.of(cause));
  }

  /** Returns the cause of the failed attempts after which HBase's client gave up. */
  private static Throwable cause(Throwable error) {
    Throwable cause = error;
    while (true) {
      Throwable deeper = cause instanceof RetriesExhaustedWithDetailsException details && details.getNumExceptions() > 0
          ? details.getCause(0)
          : cause.getCause();
      boolean isSpecific = cause instanceof DoNotRetryIOException || cause instanceof IllegalArgumentException;
      if (isSpecific || deeper == null || deeper == cause) {
        return cause;
      }
      cause = deeper;
    }
  }

  private static Status status(Throwable error) {
    if (error instanceof AccessDeniedException) {
      return Status.FORBIDDEN;
    }
    // Keys or values that are too long, or records without fields.
    if (error instanceof IllegalArgumentException || error instanceof NoSuchColumnFamilyException
        || error instanceof TableNotFoundException) {
      return Status.BAD_REQUEST;
    }
    if (error instanceof DoNotRetryIOException && !(error instanceof RetriesExhaustedException)) {
      return isOfZooKeeper(error) ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
    }
    // Servers that are down, do not answer or are overloaded.
    return error instanceof IOException ? Status.SERVICE_UNAVAILABLE : Status.ERROR;
  }

  /** Reads the message, because HBase's client has no exception type for an unreachable ZooKeeper. */
  private static boolean isOfZooKeeper(Throwable error) {
    return String.valueOf(error.getMessage()).contains("Zookeeper");
  }
}
