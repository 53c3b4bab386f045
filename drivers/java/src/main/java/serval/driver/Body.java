package serval.driver;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reader of a frame's body. Its methods throw BufferUnderflowException if the body is too short. */
final class Body {
  private final ByteBuffer buffer;
  final byte type;

  Body(byte[] frame) {
    buffer = ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN);
    type = buffer.get();
  }

  byte octet() {
    return buffer.get();
  }

  short u16() {
    return buffer.getShort();
  }

  int u32() {
    return buffer.getInt();
  }

  long u64() {
    return buffer.getLong();
  }

  byte[] bytes() {
    int length = buffer.getInt();
    if (length < 0 || length > buffer.remaining()) {
      throw new BufferUnderflowException();
    }
    byte[] bytes = new byte[length];
    buffer.get(bytes);
    return bytes;
  }

  String text() {
    int length = buffer.getInt();
    if (length < 0 || length > buffer.remaining()) {
      throw new BufferUnderflowException();
    }
    String text = new String(buffer.array(), buffer.position(), length, StandardCharsets.UTF_8);
    buffer.position(buffer.position() + length);
    return text;
  }

  /** Reads a number of items, each of which has at least four bytes. */
  int count() {
    int count = buffer.getInt();
    if (count < 0 || count > buffer.remaining() / 4) {
      throw new BufferUnderflowException();
    }
    return count;
  }

  List<String> texts() {
    int count = count();
    List<String> texts = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      texts.add(text());
    }
    return texts;
  }

  /** Reads the requested fields; null for all, as in YCSB. */
  List<String> fields() {
    List<String> fields = texts();
    return fields.isEmpty() ? null : fields;
  }

  Map<String, byte[]> record() {
    int count = count();
    Map<String, byte[]> record = new LinkedHashMap<>(2 * count);
    for (int i = 0; i < count; i++) {
      record.put(text(), bytes());
    }
    return record;
  }

  Map<String, String> pairs() {
    int count = count();
    Map<String, String> pairs = new LinkedHashMap<>(2 * count);
    for (int i = 0; i < count; i++) {
      pairs.put(text(), text());
    }
    return pairs;
  }
}
