import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.flipkart.zjsonpatch.JsonPatch;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Folds the runs of skein.events with Kafka Streams until it is ended: Peer BROKERS TOPIC APPLICATION FOLDER
 *
 * <p>The topology is a good one within the public API, exactly once: parsed runs live beside the task, and the store (its cache in front of
 * RocksDB) gets a run's bytes at every event: one copy, nothing is serialised. The cache leaves out what is overwritten before a commit, so
 * that changelog and RocksDB see a run once for each. A run's end writes its messages and state, as two snapshots. Of AG-UI's events it knows
 * texts, tool calls and state; others cost it a look at their type.
 */
public final class Peer implements Processor<String, byte[], String, byte[]> {
    private static final String STORE = "runs";

    public static void main(String[] args) {
        String application = args[2];
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        p.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L << 20);
        p.put(StreamsConfig.BUFFERED_RECORDS_PER_PARTITION_CONFIG, 10_000);
        p.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        p.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5_000);
        p.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 4 << 20);
        p.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        p.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 256 << 10);
        p.put(StreamsConfig.producerPrefix(ProducerConfig.MAX_REQUEST_SIZE_CONFIG), 4 << 20);

        Topology t = new Topology();
        t.addSource("in", Serdes.String().deserializer(), Serdes.ByteArray().deserializer(), args[1]);
        t.addProcessor("fold", Peer::new, "in");
        t.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray())
            .withCachingEnabled().withLoggingEnabled(Map.of()), "fold");
        t.addSink("out", application, Serdes.String().serializer(), Serdes.ByteArray().serializer(), "fold");

        KafkaStreams streams = new KafkaStreams(t, p);
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> store;
    private final Map<String, Run> live = new HashMap<>();

    // After a failed commit a task begins again from the store, and here without live runs: each change is in the store before its event ends.
    @Override
    public void init(ProcessorContext<String, byte[]> c) {
        context = c;
        store = c.getStateStore(STORE);
        live.clear();
    }

    @Override
    public void process(Record<String, byte[]> record) {
        try {
            String id = new String(record.headers().lastHeader("run-id").value(), StandardCharsets.UTF_8);
            Run run = live.get(id);
            if (run == null) {
                byte[] stored = store.get(id);
                live.put(id, run = stored == null ? new Run() : Run.of(stored));
            }
            int before = run.length;
            Header kind = record.headers().lastHeader("skein-kind");
            boolean input = kind != null && Arrays.equals(kind.value(), INPUT);
            if (input) {
                run.input(record.value());
            } else if (run.event(record.value())) {
                context.forward(record.withKey(id).withValue(run.snapshots()));
                store.delete(id);
                live.remove(id);
                return;
            }
            if (run.length != before) {
                store.put(id, run.bytes());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static final byte[] INPUT = "input".getBytes(StandardCharsets.UTF_8);

    /**
     * A run that is being folded: objects, and the same as a log of small operations, which is what the store keeps. A delta appends its text to
     * both, whatever the run has said before.
     */
    private static final class Run {
        private static final JsonFactory JSON = new JsonFactory();
        private static final ObjectMapper MAPPER = new ObjectMapper(JSON);
        private static final byte EVENT = 1, TEXT = 2, ARGS = 3, WHOLE_INPUT = 4;

        private static final class Call {
            String id, name;
            final StringBuilder args = new StringBuilder();
        }

        private static final class Message {
            String id, role, toolCallId;
            StringBuilder content;
            List<Call> calls;
            JsonNode raw;
            int index;
        }

        private final List<Message> messages = new ArrayList<>();
        private final List<Call> calls = new ArrayList<>();
        private final Map<String, Message> byId = new HashMap<>();
        private final Map<String, Integer> callIndex = new HashMap<>();
        private JsonNode state;
        private byte[] log = new byte[4096];
        private int length;

        byte[] bytes() {
            return Arrays.copyOf(log, length);
        }

        static Run of(byte[] b) throws IOException {
            Run r = new Run();
            int[] at = {0};
            while (at[0] < b.length) {
                byte operation = b[at[0]++];
                int index = operation == TEXT || operation == ARGS ? varint(b, at) : 0, n = varint(b, at);
                switch (operation) {
                    case EVENT -> r.event(Arrays.copyOfRange(b, at[0], at[0] + n));
                    case WHOLE_INPUT -> r.input(Arrays.copyOfRange(b, at[0], at[0] + n));
                    default -> {
                        String s = new String(b, at[0], n, StandardCharsets.UTF_8);
                        (operation == TEXT ? r.messages.get(index).content : r.calls.get(index).args).append(s);
                        r.add(operation, index, Arrays.copyOfRange(b, at[0], at[0] + n));
                    }
                }
                at[0] += n;
            }
            return r;
        }

        void input(byte[] value) throws IOException {
            JsonNode in = MAPPER.readTree(value);
            take(in.path("messages"));
            state = in.get("state");
            add(WHOLE_INPUT, -1, value);
        }

        /** Folds one event; true at the run's end. */
        boolean event(byte[] value) throws IOException {
            String id = null, call = null, delta = null;
            try (JsonParser p = JSON.createParser(value)) {
                p.nextToken();
                while (p.nextToken() == JsonToken.FIELD_NAME) {
                    String name = p.currentName();
                    JsonToken t = p.nextToken();
                    switch (name) {
                        case "type" -> {
                            String type = p.getText();
                            switch (type) {
                                case "TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS" -> { }
                                case "RUN_FINISHED", "RUN_ERROR" -> { return true; }
                                default -> {
                                    other(type, value);
                                    return false;
                                }
                            }
                        }
                        case "messageId" -> id = p.getText();
                        case "toolCallId" -> call = p.getText();
                        case "delta" -> delta = p.getText();
                        default -> {
                            if (t.isStructStart()) {
                                p.skipChildren();
                            }
                        }
                    }
                }
            }
            byte[] bytes = delta.getBytes(StandardCharsets.UTF_8);
            if (call != null) {
                Integer index = callIndex.get(call);
                if (index != null) {
                    calls.get(index).args.append(delta);
                    add(ARGS, index, bytes);
                }
                return false;
            }
            Message m = byId.get(id);
            if (m != null && m.content != null) {
                m.content.append(delta);
                add(TEXT, m.index, bytes);
            }
            return false;
        }

        private void other(String type, byte[] value) throws IOException {
            switch (type) {
                case "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK", "TOOL_CALL_START", "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA",
                    "MESSAGES_SNAPSHOT" -> { }
                default -> { return; }
            }
            JsonNode e = MAPPER.readTree(value);
            switch (type) {
                case "RUN_STARTED" -> take(e.path("input").path("messages"));
                case "TEXT_MESSAGE_START" -> message(e.get("messageId").asText(), e.path("role").asText("assistant")).content = new StringBuilder();
                case "TEXT_MESSAGE_CHUNK" -> {
                    Message m = e.has("messageId") ? byId.get(e.get("messageId").asText()) : messages.get(messages.size() - 1);
                    if (m == null) {
                        m = message(e.get("messageId").asText(), e.path("role").asText("assistant"));
                        m.content = new StringBuilder();
                    }
                    if (m.content != null) {
                        m.content.append(e.path("delta").asText());
                    }
                }
                case "TOOL_CALL_START" -> {
                    Call c = new Call();
                    c.id = e.get("toolCallId").asText();
                    c.name = e.get("toolCallName").asText();
                    Message m = e.has("parentMessageId") ? byId.get(e.get("parentMessageId").asText()) : null;
                    if (m == null) {
                        m = message(c.id, "assistant");
                    }
                    if (m.calls == null) {
                        m.calls = new ArrayList<>();
                    }
                    m.calls.add(c);
                    callIndex.put(c.id, calls.size());
                    calls.add(c);
                }
                case "TOOL_CALL_RESULT" -> {
                    Message m = message(e.get("messageId").asText(), "tool");
                    m.toolCallId = e.get("toolCallId").asText();
                    m.content = new StringBuilder(e.get("content").asText());
                }
                case "STATE_SNAPSHOT" -> state = e.get("snapshot");
                case "STATE_DELTA" -> JsonPatch.applyInPlace(e.get("delta"), state);
                default -> { // MESSAGES_SNAPSHOT
                    messages.clear();
                    byId.clear();
                    take(e.path("messages"));
                }
            }
            add(EVENT, -1, value);
        }

        private void take(JsonNode all) {
            for (JsonNode raw : all) {
                String id = raw.get("id").asText();
                if (!byId.containsKey(id)) {
                    message(id, raw.get("role").asText()).raw = raw;
                }
            }
        }

        private Message message(String id, String role) {
            Message m = new Message();
            m.id = id;
            m.role = role;
            m.index = messages.size();
            messages.add(m);
            byId.put(id, m);
            return m;
        }

        private void add(byte operation, int index, byte[] b) {
            if (log.length - length < b.length + 16) {
                log = Arrays.copyOf(log, Math.max(log.length * 2, length + b.length + 16));
            }
            log[length++] = operation;
            if (index >= 0) {
                put(index);
            }
            put(b.length);
            System.arraycopy(b, 0, log, length, b.length);
            length += b.length;
        }

        private void put(int n) {
            for (; n > 127; n >>>= 7) {
                log[length++] = (byte) (n & 127 | 128);
            }
            log[length++] = (byte) n;
        }

        private static int varint(byte[] b, int[] at) {
            for (int n = 0, shift = 0;; shift += 7) {
                byte x = b[at[0]++];
                n |= (x & 127) << shift;
                if (x >= 0) {
                    return n;
                }
            }
        }

        /** MESSAGES_SNAPSHOT and STATE_SNAPSHOT. */
        byte[] snapshots() throws IOException {
            ByteArrayOutputStream out = new ByteArrayOutputStream(length + length / 4 + 256);
            try (JsonGenerator g = JSON.createGenerator(out)) {
                g.setCodec(MAPPER);
                g.writeStartArray();
                g.writeStartObject();
                g.writeStringField("type", "MESSAGES_SNAPSHOT");
                g.writeArrayFieldStart("messages");
                for (Message m : messages) {
                    write(g, m);
                }
                g.writeEndArray();
                g.writeEndObject();
                g.writeStartObject();
                g.writeStringField("type", "STATE_SNAPSHOT");
                g.writeFieldName("snapshot");
                g.writeTree(state);
                g.writeEndObject();
                g.writeEndArray();
            }
            return out.toByteArray();
        }

        private static void write(JsonGenerator g, Message m) throws IOException {
            if (m.raw != null) {
                g.writeTree(m.raw);
                return;
            }
            g.writeStartObject();
            g.writeStringField("id", m.id);
            g.writeStringField("role", m.role);
            if (m.content != null) {
                g.writeStringField("content", m.content.toString());
            }
            if (m.toolCallId != null) {
                g.writeStringField("toolCallId", m.toolCallId);
            }
            if (m.calls != null) {
                g.writeArrayFieldStart("toolCalls");
                for (Call c : m.calls) {
                    g.writeStartObject();
                    g.writeStringField("id", c.id);
                    g.writeStringField("type", "function");
                    g.writeObjectFieldStart("function");
                    g.writeStringField("name", c.name);
                    g.writeStringField("arguments", c.args.toString());
                    g.writeEndObject();
                    g.writeEndObject();
                }
                g.writeEndArray();
            }
            g.writeEndObject();
        }
    }
}
