import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.io.ByteArrayInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.List;

/** Speaks MongoDB's protocol on a port of loopback, with TLS if a folder with server.key and server.crt is named. */
class MongoStandIn {
  public static void main(String[] arguments) throws Exception {
    MongoServer server = new MongoServer(new MemoryBackend().version(new Version()));
    if (arguments.length > 1) {
      Path folder = Path.of(arguments[1]);
      server.enableSsl(key(folder.resolve("server.key")), null, certificate(folder.resolve("server.crt")));
    }
    server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
  }

  /** The oldest that today's drivers talk to; the library's own are older, though what is asked here is the same. */
  private static class Version implements MongoVersion {
    @Override
    public List<Integer> getVersionArray() {
      return List.of(4, 4, 0);
    }

    @Override
    public int getWireVersion() {
      return 9;
    }
  }

  private static PrivateKey key(Path pem) throws Exception {
    String text = Files.readString(pem).replaceAll("-----[A-Z ]*-----", "").replaceAll("\\s", "");
    return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(text)));
  }

  private static X509Certificate certificate(Path pem) throws Exception {
    byte[] bytes = Files.readAllBytes(pem);
    return (X509Certificate)
        CertificateFactory.getInstance("X.509").generateCertificate(new ByteArrayInputStream(bytes));
  }
}
