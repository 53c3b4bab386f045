package serval.driver;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** The driver protocol (docs/driver-protocol.md) on standard input and output, for any {@link Store}. */
public final class Driver {
  private static final int MAGIC = 0x4c565253;
  private static final int VERSION = 1;
  private static final int HELLO = 1;
  private static final int PREPARE = 2;
  private static final int OPEN = 3;
  private static final int OPEN_APART = 11;
  /** The capability of clients with connections of their own. */
  private static final int APART = 1 << 6;
  private static final int WELCOME = 1;
  private static final int REFUSED = 2;

  /** Makes a store from the properties of the greeting. Throws with words for the user. */
  public interface Opener {
    Store open(Properties properties) throws Exception;
  }

  private final In in;
  private final Out out;
  private final Map<Integer, Worker> workers = new HashMap<>();
  /** The clients with connections of their own, whose numbers may come again. */
  private final List<Worker> apart = new ArrayList<>();
  private Store store;
  private boolean tellsFlushes;

  private Driver(In in, Out out) {
    this.in = in;
    this.out = out;
  }

  /** Serves until the input ends, and ends the process. */
  public static void main(Opener opener) throws Exception {
    try {
      serve(opener);
    } catch (IOException gone) {
      System.err.println(Worker.words(gone));
      System.exit(1);
    }
    // Threads that a client library has left must not keep the driver.
    System.exit(0);
  }

  /** Serves until the input ends. What anybody prints goes to standard error, for standard output is the protocol's. */
  private static void serve(Opener opener) throws Exception {
    FileInputStream input = new FileInputStream(FileDescriptor.in);
    FileOutputStream output = new FileOutputStream(FileDescriptor.out);
    System.setOut(System.err);
    new Driver(new In(input), new Out(output)).run(opener);
  }

  private void run(Opener opener) throws Exception {
    byte[] hello = in.next();
    if (hello == null || !greet(new Body(hello), opener)) {
      return;
    }
    try {
      for (byte[] frame = in.next(); frame != null; frame = in.next()) {
        request(frame);
      }
    } finally {
      apart.addAll(workers.values());
      for (Worker worker : apart) {
        worker.end();
      }
      store.close();
    }
  }

  private boolean greet(Body body, Opener opener) throws IOException {
    if (body.type != HELLO || body.u32() != MAGIC) {
      throw new IOException("what came is not of the driver protocol");
    }
    Frame frame = new Frame();
    int version = body.u16();
    try {
      if (version != VERSION) {
        throw new IllegalArgumentException("this driver speaks version " + VERSION + " of the protocol, not " + version);
      }
      Properties properties = new Properties();
      properties.putAll(body.pairs());
      tellsFlushes = "told".equals(properties.getProperty("driver.flushes"));
      store = opener.open(properties);
      frame.begin(WELCOME).u16(VERSION).text(store.name()).u32(store.capabilities() | APART);
      Map<String, String> facts = store.facts();
      frame.u32(facts.size());
      facts.forEach((name, value) -> frame.text(name).text(value));
    } catch (Exception | LinkageError error) {
      frame.begin(REFUSED).text(Worker.words(error));
    }
    frame.end();
    out.send(frame);
    return store != null;
  }

  private void request(byte[] frame) throws IOException {
    Body body = new Body(frame);
    int id = body.u32();
    if (body.type == PREPARE) {
      prepare(id, body);
      return;
    }
    int client;
    try {
      client = body.u32();
      if (body.type == OPEN_APART) {
        apart.removeIf(Worker::hasEnded);
        Worker worker = new Worker(store, client, tellsFlushes, out, id, body.text(), body.text());
        apart.add(worker);
        worker.start();
        return;
      }
    } catch (BufferUnderflowException tooShort) {
      answer(id, Client.Status.BAD_REQUEST, "the request is too short");
      return;
    }
    Worker worker = workers.get(client);
    if (body.type == OPEN && (worker == null || worker.hasEnded())) {
      worker = new Worker(store, client, tellsFlushes, out);
      workers.put(client, worker);
      worker.start();
    }
    if (worker == null || worker.hasEnded()) {
      answer(id, Client.Status.BAD_REQUEST, "client " + client + " is not open");
      return;
    }
    worker.give(frame);
  }

  private void prepare(int id, Body body) throws IOException {
    try {
      boolean load = body.octet() == 0;
      String table = body.text();
      store.prepare(table, body.texts(), load);
      answer(id, Client.Status.OK, "");
    } catch (Exception | LinkageError error) {
      answer(id, Client.Status.ERROR, Worker.words(error));
    }
  }

  private void answer(int id, Client.Status status, String message) throws IOException {
    Frame frame = new Frame();
    frame.begin(Worker.RESULT).u32(id).octet(status.ordinal()).u64(0).text(message).u32(0);
    frame.end();
    out.send(frame);
  }
}
