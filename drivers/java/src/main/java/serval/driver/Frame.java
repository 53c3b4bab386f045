package serval.driver;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Builder of frames. Its buffer is reused for the next frame. */
final class Frame implements Client.Reply {
  static final int MAX = 256 << 20;

  private byte[] bytes = new byte[1 << 12];
  private int length;
  private int records;
  private int recordsAt;
  private int fields;
  private int fieldsAt;

  /** Returns the announced length of a frame, or throws if the protocol does not allow it. */
  static int checkedLength(int length) throws IOException {
    if (length <= 0 || length > MAX) {
      throw new IOException("a frame of " + Integer.toUnsignedString(length) + " bytes");
    }
    return length;
  }

  Frame begin(int type) {
    length = 4;
    records = 0;
    fieldsAt = 0;
    return octet(type);
  }

  private void room(int more) {
    if (more > bytes.length - length) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, length + more));
    }
  }

  Frame octet(int value) {
    room(1);
    bytes[length++] = (byte) value;
    return this;
  }

  private void put(int at, long value, int size) {
    for (int i = 0; i < size; i++) {
      bytes[at + i] = (byte) (value >>> 8 * i);
    }
  }

  private Frame number(long value, int size) {
    room(size);
    put(length, value, size);
    length += size;
    return this;
  }

  Frame u16(int value) {
    return number(value, 2);
  }

  Frame u32(int value) {
    return number(value, 4);
  }

  Frame u64(long value) {
    return number(value, 8);
  }

  Frame data(byte[] data) {
    u32(data.length);
    room(data.length);
    System.arraycopy(data, 0, bytes, length, data.length);
    length += data.length;
    return this;
  }

  Frame text(String text) {
    return data(text.getBytes(StandardCharsets.UTF_8));
  }

  /** Begins a list of records, which the methods of {@link Client.Reply} append. */
  Frame records() {
    recordsAt = length;
    return u32(0);
  }

  @Override
  public void begin() {
    endRecord();
    records++;
    fields = 0;
    fieldsAt = length;
    u32(0);
  }

  @Override
  public void field(String name, byte[] value) {
    fields++;
    text(name).data(value);
  }

  private void endRecord() {
    if (fieldsAt > 0) {
      put(fieldsAt, fields, 4);
    }
  }

  /** Ends the frame; false if it is longer than the protocol allows. */
  boolean end() {
    endRecord();
    if (recordsAt > 0 && records > 0) {
      put(recordsAt, records, 4);
    }
    put(0, length - 4, 4);
    return length - 4 <= MAX;
  }

  /** Overwrites {@code size} bytes that were put before. */
  void patch(int at, long value, int size) {
    put(at, value, size);
  }

  int position() {
    return length;
  }

  byte[] array() {
    return bytes;
  }
}
