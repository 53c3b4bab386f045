package serval.driver;

import java.util.List;
import java.util.Map;

/** A client's handle on a store. An exception is answered with ERROR and its message. */
public interface Client {
  /** Outcome of an operation: a status of the protocol and, for a failure, the store's message. */
  record Outcome(int status, String message) {
    /** The operation succeeded. */
    public static final Outcome OK = new Outcome(0, "");
    /** The record does not exist. */
    public static final Outcome NOT_FOUND = new Outcome(3, "");

    /** Makes an outcome with the store's message. */
    public static Outcome of(Status status, String message) {
      return new Outcome(status.ordinal(), message);
    }
  }

  /**
   * A flush of a write buffer: its outcome, its duration, its end by System.nanoTime(), the number of writes, and an upper
   * bound of the failed ones.
   */
  record Flush(Outcome outcome, long nanoseconds, long endedAt, long writes, long lost) {}

  /** Statuses of the protocol, in the order of their numbers. */
  enum Status {
    OK,
    BATCHED_OK,
    ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    UNEXPECTED_STATE,
    BAD_REQUEST,
    FORBIDDEN,
    SERVICE_UNAVAILABLE
  }

  /** Receiver of the records of a read or scan: {@code begin} for each record, then its fields. */
  interface Reply {
    void begin();

    void field(String name, byte[] value);
  }

  /** Reads the given fields; all if null. */
  Outcome read(String table, String key, List<String> fields, Reply reply) throws Exception;

  Outcome update(String table, String key, Map<String, byte[]> values) throws Exception;

  Outcome insert(String table, String key, Map<String, byte[]> values) throws Exception;

  Outcome scan(String table, String start, long count, List<String> fields, Reply reply) throws Exception;

  Outcome delete(String table, String key) throws Exception;

  /** Returns the next unreported flush, or null. Called after each operation and after the close. */
  default Flush flushed() {
    return null;
  }

  /** Sends buffered writes and closes the handle. */
  Outcome close() throws Exception;
}
