package serval.driver;

import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;

/** Reader of the frames of a stream. */
final class FrameReader {
  private final FileInputStream stream;
  /** Buffer; unread bytes are from {@code from} to {@code to}. It is small, because Java copies longer reads twice. */
  private final byte[] bytes = new byte[1 << 13];
  private int from;
  private int to;

  FrameReader(FileInputStream stream) {
    this.stream = stream;
  }

  /** Returns the next frame, type first, or null at the end of the stream. */
  byte[] next() throws IOException {
    while (to - from < 4) {
      System.arraycopy(bytes, from, bytes, 0, to - from);
      to -= from;
      from = 0;
      int count = stream.read(bytes, to, bytes.length - to);
      if (count < 0) {
        if (to > 0) {
          throw new EOFException("the input ends in the middle of a frame");
        }
        return null;
      }
      to += count;
    }
    int length = bytes[from] & 255 | (bytes[from + 1] & 255) << 8 | (bytes[from + 2] & 255) << 16 | bytes[from + 3] << 24;
    byte[] frame = new byte[Frame.checkedLength(length)];
    from += 4;
    int filled = Math.min(length, to - from);
    System.arraycopy(bytes, from, frame, 0, filled);
    from += filled;
    while (filled < length) {
      int count = stream.read(frame, filled, length - filled);
      if (count < 0) {
        throw new EOFException("the input ends in the middle of a frame");
      }
      filled += count;
    }
    return frame;
  }
}
