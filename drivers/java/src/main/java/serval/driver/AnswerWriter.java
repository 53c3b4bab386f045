package serval.driver;

import java.io.FileOutputStream;
import java.io.IOException;
import java.util.Arrays;

/**
 * Writer of answers to Serval. Clients' threads append frames to a buffer. A thread that finds no other thread writing writes
 * the whole buffer, so that answers of several clients leave in one system call.
 */
final class AnswerWriter implements AnswerSink {
  private final FileOutputStream stream;
  private byte[] waiting = new byte[1 << 16];
  private int length;
  private byte[] spare = new byte[1 << 16];
  private boolean writing;

  AnswerWriter(FileOutputStream stream) {
    this.stream = stream;
  }

  @Override
  public void send(Frame frame) throws IOException {
    synchronized (this) {
      int more = frame.position();
      if (more > waiting.length - length) {
        waiting = Arrays.copyOf(waiting, Math.max(2 * waiting.length, length + more));
      }
      System.arraycopy(frame.array(), 0, waiting, length, more);
      length += more;
      if (writing) {
        return;
      }
      writing = true;
    }
    while (true) {
      byte[] batch;
      int size;
      synchronized (this) {
        if (length == 0) {
          writing = false;
          return;
        }
        batch = waiting;
        size = length;
        waiting = spare;
        spare = batch;
        length = 0;
      }
      stream.write(batch, 0, size);
    }
  }
}
