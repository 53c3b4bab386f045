package serval.driver;

import java.util.Locale;
import java.util.Properties;

/** Properties of a store. Serval has checked them and set their defaults. */
public final class StoreProperties {
  private final Properties properties;
  private final String store;

  /** Takes the properties of the greeting, and Serval's name of the store. */
  public StoreProperties(Properties properties, String store) {
    this.properties = properties;
    this.store = store;
  }

  /** Returns a property that may be missing. */
  public String optional(String name, String otherwise) {
    return properties.getProperty(name, otherwise);
  }

  /** Returns a property that Serval always sets. */
  public String text(String name) {
    String text = properties.getProperty(name);
    if (text == null) {
      throw new IllegalArgumentException(
          name + " is not set; 'serval load " + store + "' and 'serval run " + store + "' set it");
    }
    return text;
  }

  /** Returns the constant of an enum that a property names, in upper or lower case. */
  public <E extends Enum<E>> E choice(Class<E> type, String name) {
    return Enum.valueOf(type, text(name).toUpperCase(Locale.ROOT));
  }

  public boolean flag(String name) {
    return Boolean.parseBoolean(text(name));
  }

  public long number(String name) {
    return Long.parseLong(text(name));
  }

  public int count(String name) {
    return Integer.parseInt(text(name));
  }

  /** Returns whether Serval accepts reports of flushes; if not, an operation reports their failures. */
  public boolean reportsFlushes() {
    return "told".equals(properties.getProperty("driver.flushes"));
  }
}
