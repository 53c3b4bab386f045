package serval.driver;

import java.util.Locale;
import java.util.Properties;

/** The properties of a store. Serval has checked them and filled in the defaults, which live there. */
public final class Given {
  private final Properties properties;
  private final String store;

  /** The properties of the greeting, for the store of this name in Serval. */
  public Given(Properties properties, String store) {
    this.properties = properties;
    this.store = store;
  }

  /** A property that may be missing. */
  public String optional(String name, String otherwise) {
    return properties.getProperty(name, otherwise);
  }

  /** A property that Serval always sets. */
  public String text(String name) {
    String text = properties.getProperty(name);
    if (text == null) {
      throw new IllegalArgumentException(
          name + " is not set; 'serval load " + store + "' and 'serval run " + store + "' set it");
    }
    return text;
  }

  /** A choice among an enum's names, in capital letters or not. */
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

  /** Whether Serval takes flushes as such; if not, their failures are those of operations. */
  public boolean tellsFlushes() {
    return "told".equals(properties.getProperty("driver.flushes"));
  }
}
