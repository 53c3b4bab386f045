package serval.driver;

import java.util.List;
import java.util.Map;

/** One client's handle on a store. An exception is an ERROR with its words. */
public interface Client {
  /** How an operation ended: a status of the protocol and, for a failure, the store's words. */
  record Outcome(int status, String message) {
    /** The operation was done. */
    public static final Outcome OK = new Outcome(0, "");
    /** There is no such record. */
    public static final Outcome NOT_FOUND = new Outcome(3, "");

    /** A failure and the store's words for it. */
    public static Outcome of(Status status, String message) {
      return new Outcome(status.ordinal(), message);
    }
  }

  /**
   * Buffered writes sent together: how that ended, how long it took, when it ended by System.nanoTime(), how many writes
   * were sent, and how many of them at most were not done.
   */
  record Flush(Outcome outcome, long nanoseconds, long endedAt, long writes, long lost) {}

  /** The protocol's statuses, in its order. */
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

  /** Takes the records of a read or scan: field names and values in turn. */
  interface Reply {
    void begin();

    void field(String name, byte[] value);
  }

  /** Reads fields, or all for null. */
  Outcome read(String table, String key, List<String> fields, Reply reply) throws Exception;

  Outcome update(String table, String key, Map<String, byte[]> values) throws Exception;

  Outcome insert(String table, String key, Map<String, byte[]> values) throws Exception;

  Outcome scan(String table, String start, long count, List<String> fields, Reply reply) throws Exception;

  Outcome delete(String table, String key) throws Exception;

  /** The next flush that has not been told of, or null. Asked after each operation, and after the close. */
  default Flush flushed() {
    return null;
  }

  /** Ends the handle; buffered writes are sent. */
  Outcome close() throws Exception;
}
