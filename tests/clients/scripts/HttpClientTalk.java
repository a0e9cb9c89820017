import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Uses Java's own HTTP client, which first asks to upgrade to HTTP/2 over plain HTTP. OPENAI_BASE_URL and OPENAI_API_KEY come from its environment. */
public class HttpClientTalk {
  static final String ASKED = """
      {"model": "policy", "stream": %s, %s "messages": [{"role": "user", "content": "Look into the folder (%s)."}]}""";
  static final String SCHEMA = """
      "response_format": {"type": "json_schema", "json_schema": {"name": "seen", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}}},""";

  static final HttpClient CLIENT = HttpClient.newHttpClient();

  /** Asks the policy with a body such as {"model": "policy", "messages": [{"role": "user", "content": "Hello"}]}. */
  static HttpResponse<Stream<String>> ask(String body) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(System.getenv("OPENAI_BASE_URL") + "/chat/completions"))
        .header("authorization", "Bearer " + System.getenv("OPENAI_API_KEY"))
        .header("content-type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofString(body))
        .build();
    return CLIENT.send(request, HttpResponse.BodyHandlers.ofLines());
  }

  public static void main(String[] modes) throws Exception {
    for (String mode : modes) {
      boolean stream = mode.contains("streamed");
      var reply = ask(ASKED.formatted(stream, mode.equals("json_schema") ? SCHEMA : "", mode));
      String said = reply.body().collect(Collectors.joining("\n"));
      boolean isWhole = stream ? said.contains("data: [DONE]") : said.contains("\"finish_reason\":\"stop\"");
      if (reply.statusCode() != 200 || !isWhole) throw new IllegalStateException(reply.statusCode() + " " + said);
    }
  }
}
