import io.fabric8.kubernetes.client.server.mock.KubernetesCrudDispatcher;
import io.fabric8.kubernetes.client.server.mock.KubernetesMockServer;
import io.fabric8.mockwebserver.Context;
import io.fabric8.mockwebserver.MockWebServer;
import io.fabric8.mockwebserver.http.MockResponse;
import io.fabric8.mockwebserver.http.RecordedRequest;
import java.net.InetAddress;
import java.util.HashMap;

/** An API server that keeps what it is given, checks nothing, and prints each request. */
public final class KubernetesDouble {
  public static void main(String[] words) throws Exception {
    var dispatcher =
        new KubernetesCrudDispatcher() {
          @Override
          public MockResponse dispatch(RecordedRequest request) {
            var agent = request.getHeader("User-Agent");
            System.out.println("request " + agent + " " + request.getMethod() + " " + request.getPath());
            return super.dispatch(request);
          }
        };
    var server =
        new KubernetesMockServer(new Context(), new MockWebServer(), new HashMap<>(), dispatcher, false);
    server.init(InetAddress.getLoopbackAddress(), Integer.parseInt(words[0]));
    System.out.println("ready");
    Thread.currentThread().join();
  }
}
