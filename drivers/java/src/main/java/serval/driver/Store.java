package serval.driver;

import java.util.List;
import java.util.Map;

/** A store under test: what a driver drives. */
public interface Store {
  /** The store's name, for messages. */
  String name();

  /** The verbs that it has, as bits of the protocol's capabilities: by default all but batches of inserts. */
  default int capabilities() {
    return 0b11111;
  }

  /** Facts for the result, such as versions. */
  Map<String, String> facts();

  /** Makes ready for records of this shape. Throws with words for the user when that cannot be. */
  void prepare(String table, List<String> fields, boolean load) throws Exception;

  /** One client's handle, made and used on the client's own thread. */
  Client open(int number) throws Exception;

  /** Ends what the clients have shared. */
  default void close() throws Exception {}
}
