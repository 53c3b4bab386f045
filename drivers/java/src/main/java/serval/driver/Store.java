package serval.driver;

import java.util.List;
import java.util.Map;

/** A store that a driver serves. */
public interface Store {
  /** Returns the store's name, for messages. */
  String name();

  /** Returns the store's verbs as capability bits of the protocol; by default all but batches of inserts. */
  default int capabilities() {
    return 0b11111;
  }

  /** Returns facts for the result, such as versions. */
  Map<String, String> facts();

  /** Prepares the store for records with these fields. Exceptions have a message for the user. */
  void prepare(String table, List<String> fields, boolean load) throws Exception;

  /** Opens a client's handle. Called and used on the client's own thread. */
  Client open(int number) throws Exception;

  /** Closes resources that the clients share. */
  default void close() throws Exception {}
}
