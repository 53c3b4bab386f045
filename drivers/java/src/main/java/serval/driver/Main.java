package serval.driver;

/** Serval starts it as {@code java -cp ... serval.driver.Main KIND}, with the store's settings as properties of the protocol. */
public final class Main {
  private Main() {}

  /** The one argument is the kind of store: {@code ycsb}. */
  public static void main(String[] arguments) throws Exception {
    String kind = arguments.length == 1 ? arguments[0] : "";
    Driver.Opener opener = switch (kind) {
      case "ycsb" -> properties -> {
        String name = properties.getProperty("java.class", "");
        if (name.isEmpty()) {
          throw new IllegalArgumentException("java.class names no binding");
        }
        return new YcsbStore(name, properties);
      };
      default -> throw new IllegalArgumentException("usage: serval.driver.Main ycsb");
    };
    Driver.main(opener);
  }
}
