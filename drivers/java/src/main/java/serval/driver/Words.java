package serval.driver;

/** Exceptions in words for a result, which counts failures by them. */
public final class Words {
  /** Messages may hold stack traces. */
  private static final int LENGTH_MAX = 300;

  private Words() {}

  /** The name of an exception's class and the first line of its message. */
  public static String of(Throwable error) {
    String message = error.getMessage() == null ? "" : error.getMessage().lines().findFirst().orElse("");
    String name = error.getClass().getSimpleName();
    String words = message.isEmpty() ? name : name + ": " + message;
    return words.length() > LENGTH_MAX ? words.substring(0, LENGTH_MAX) + "..." : words;
  }

  /** The same, with those of its deepest cause. */
  public static String withCause(Throwable error) {
    Throwable cause = error;
    while (cause.getCause() != null && cause.getCause() != cause) {
      cause = cause.getCause();
    }
    return cause == error ? of(error) : of(error) + ": " + of(cause);
  }
}
