import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends runs to skein.events as docs/producing.md says: SendRuns BROKERS TOPIC FILE
 *
 * <p>FILE is JSON Lines. A line with "run" begins a run and says whose it is:
 * {"tenant": …, "thread": …, "run": …, "agent": …}. A line with "type" is an event of that run, any other line its
 * input. Inputs and events are sent as they stand there.
 */
public final class SendRuns {
    public static void main(String[] args) throws Exception {
        String brokers = args[0], topic = args[1], file = args[2];
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", brokers,
            "acks", "all",
            "enable.idempotence", true, // retries of the client neither double nor reorder
            "compression.type", "zstd",
            "max.request.size", (16 << 20) + (64 << 10)); // one event of 16 MiB with its key and headers
        // No partitioner.class: the default is murmur2 of the key, which Skein goes by.
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new ByteArraySerializer());
        var failed = new AtomicReference<Exception>();
        try (var lines = Files.lines(Path.of(file))) {
            JsonObject run = null;
            String key = null;
            long seq = 0;
            for (String line : (Iterable<String>) lines::iterator) {
                JsonObject members = JsonParser.parseString(line).getAsJsonObject();
                boolean event = members.has("type");
                if (!event && members.has("run")) {
                    run = members;
                    key = escape(text(run, "tenant")) + "/" + escape(text(run, "thread"));
                    seq = 0;
                    continue;
                }
                var record = new ProducerRecord<>(topic, key, line.getBytes(StandardCharsets.UTF_8));
                header(record, "skein-version", "1");
                header(record, "skein-kind", event ? "event" : "input");
                header(record, "run-id", text(run, "run"));
                if (event) { // an input has no number; it comes before the run's first event
                    header(record, "seq", Long.toString(seq++)); // from 0, so that what is sent again is dropped
                }
                if (run.has("agent")) {
                    header(record, "agent", text(run, "agent"));
                }
                producer.send(record, (done, error) -> failed.compareAndSet(null, error));
                if (failed.get() != null) {
                    producer.close(Duration.ZERO); // nothing may be written behind a gap
                    break;
                }
            }
        }
        producer.close(); // waits for what is under way
        if (failed.get() != null) {
            System.err.println("not all was sent: " + failed.get() + "; send the file again");
            System.exit(1);
        }
    }

    /** Writes a part of a key: A-Z a-z 0-9 - . _ ~ stay, every other byte of the UTF-8 becomes %XX. */
    static String escape(String part) {
        return URLEncoder.encode(part, StandardCharsets.UTF_8).replace("+", "%20").replace("*", "%2A").replace("%7E", "~");
    }

    static String text(JsonObject members, String name) { return members.get(name).getAsString(); }

    static void header(ProducerRecord<?, ?> record, String name, String value) {
        record.headers().add(name, value.getBytes(StandardCharsets.UTF_8));
    }
}
