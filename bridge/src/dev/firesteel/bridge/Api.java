package dev.firesteel.bridge;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.RequestConfig;
import io.fabric8.kubernetes.client.RequestConfigBuilder;
import io.fabric8.kubernetes.client.http.AsyncBody;
import io.fabric8.kubernetes.client.http.HttpClient;
import io.fabric8.kubernetes.client.http.HttpRequest;
import io.fabric8.kubernetes.client.http.HttpResponse;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * The three requests the bridge makes, with the HTTP client and the credentials of Spark's own Kubernetes client: patch the
 * grant's status, get the ledger, watch the ledger. No discovery, and no retries hidden from the caller.
 */
final class Api {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_SECONDS = 10;
    private static final int ANSWER_MILLIS = 500;

    private final HttpClient http;
    private final String grantStatus;
    private final String ledger;
    private final String ledgers;
    private final String name;

    Api(KubernetesClient client, String namespace, String name) {
        this.http = client.getHttpClient().newBuilder().tag(withoutRetries(client)).build();
        String master = client.getMasterUrl().toString();
        String base = (master.endsWith("/") ? master : master + "/")
                + "apis/firesteel.dev/v1alpha1/namespaces/" + namespace + "/";
        this.name = name;
        this.grantStatus = base + "executorgrants/" + name + "/status";
        this.ledgers = base + "executorledgers";
        this.ledger = ledgers + "/" + name;
    }

    /** The response; {@code code} is 0 if there was none. */
    static final class Answer {
        final int code;
        final String body;
        final long retryAfterMillis;

        Answer(int code, String body, long retryAfterMillis) {
            this.code = code;
            this.body = body == null ? "" : body;
            this.retryAfterMillis = retryAfterMillis;
        }

        boolean ok() {
            return code >= 200 && code < 300;
        }

        /** The API server's message, or the raw body. */
        String message() {
            try {
                Object message = parse(body).get("message");
                if (message != null) {
                    return message.toString();
                }
            } catch (JsonProcessingException e) {
                // Not a Status object: a proxy's page, or the text of a connection error.
            }
            return body.length() > 300 ? body.substring(0, 300) : body;
        }
    }

    Answer patchStatus(Map<String, Object> status) throws InterruptedException {
        String body;
        try {
            body = JSON.writeValueAsString(Collections.singletonMap("status", status));
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
        return send(request(grantStatus).method("PATCH", "application/merge-patch+json", body));
    }

    Answer getLedger() throws InterruptedException {
        return send(request(ledger));
    }

    static Map<String, Object> parse(String body) throws JsonProcessingException {
        Object value = JSON.readValue(body, Object.class);
        return value instanceof Map ? MergePatch.object(value) : Collections.emptyMap();
    }

    /**
     * Watches the ledger, starting with its current state. {@code line} gets each event; {@code end} is called once, with
     * what ended it. The returned function closes it.
     */
    Runnable watchLedger(int seconds, Consumer<String> line, Consumer<Answer> end) {
        HttpRequest request = request(ledgers + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=" + seconds
                + "&fieldSelector=metadata.name%3D" + name).forStreaming().build();
        ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        CompletableFuture<HttpResponse<AsyncBody>> call = http.consumeBytes(request, (chunks, body) -> {
            for (ByteBuffer chunk : chunks) {
                while (chunk.hasRemaining()) {
                    byte next = chunk.get();
                    if (next == '\n') {
                        line.accept(new String(buffer.toByteArray(), StandardCharsets.UTF_8));
                        buffer.reset();
                    } else {
                        buffer.write(next);
                    }
                }
            }
            body.consume();
        });
        call.whenComplete((response, failure) -> {
            if (failure != null) {
                end.accept(failed(failure));
            } else if (!response.isSuccessful()) {
                response.body().cancel();
                end.accept(new Answer(response.code(), response.message(), retryAfter(response)));
            } else {
                response.body().done().whenComplete((done, broken) ->
                        end.accept(broken == null ? new Answer(response.code(), "", 0) : failed(broken)));
                response.body().consume();
            }
        });
        return () -> {
            call.cancel(true);
            call.thenAccept(response -> response.body().cancel());
        };
    }

    private Answer send(HttpRequest.Builder request) throws InterruptedException {
        CompletableFuture<HttpResponse<String>> call =
                http.sendAsync(request.timeout(TIMEOUT_SECONDS, TimeUnit.SECONDS).build(), String.class);
        try {
            HttpResponse<String> response = call.get(TIMEOUT_SECONDS + 5, TimeUnit.SECONDS);
            return new Answer(response.code(), response.body(), retryAfter(response));
        } catch (ExecutionException e) {
            return failed(e.getCause());
        } catch (TimeoutException e) {
            call.cancel(true);
            return new Answer(0, "no response within " + (TIMEOUT_SECONDS + 5) + " s", 0);
        } catch (InterruptedException e) {
            // The driver is stopping. The connection is free only after the response: see FiresteelAllocator.stop.
            try {
                call.get(ANSWER_MILLIS, TimeUnit.MILLISECONDS);
            } catch (ExecutionException | TimeoutException late) {
                call.cancel(true);
            }
            throw e;
        }
    }

    private HttpRequest.Builder request(String uri) {
        return http.newHttpRequestBuilder().uri(uri).header("Accept", "application/json");
    }

    private static Answer failed(Throwable failure) {
        return new Answer(0, String.valueOf(failure), 0);
    }

    private static long retryAfter(HttpResponse<?> response) {
        String value = response.header("Retry-After");
        try {
            return value == null ? 0 : Math.min(30_000L, Long.parseLong(value.trim()) * 1000L);
        } catch (NumberFormatException e) {
            return 0;
        }
    }

    /**
     * The client would retry a failed request for minutes, with a body that is outdated by then. The setter takes an int
     * in fabric8 6 and an Integer in fabric8 7, hence by name.
     */
    private static RequestConfig withoutRetries(KubernetesClient client) {
        RequestConfigBuilder builder = new RequestConfigBuilder(client.getConfiguration().getRequestConfig());
        for (java.lang.reflect.Method method : RequestConfigBuilder.class.getMethods()) {
            if (method.getName().equals("withRequestRetryBackoffLimit") && method.getParameterCount() == 1) {
                try {
                    method.invoke(builder, 0);
                } catch (ReflectiveOperationException e) {
                    // Then the client keeps its retries: slower, but correct.
                }
                break;
            }
        }
        return builder.build();
    }
}
