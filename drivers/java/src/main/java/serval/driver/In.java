package serval.driver;

import java.io.EOFException;
import java.io.FileInputStream;
import java.io.IOException;

/** The frames that come by a way. */
final class In {
  private final FileInputStream stream;
  /** What has come and was not taken yet lies between two places. Small, for the system copies larger ones twice. */
  private final byte[] bytes = new byte[1 << 13];
  private int from;
  private int to;

  In(FileInputStream stream) {
    this.stream = stream;
  }

  /** The next frame, or null at the end. */
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
    int there = Math.min(length, to - from);
    System.arraycopy(bytes, from, frame, 0, there);
    from += there;
    while (there < length) {
      int count = stream.read(frame, there, length - there);
      if (count < 0) {
        throw new EOFException("the input ends in the middle of a frame");
      }
      there += count;
    }
    return frame;
  }
}
