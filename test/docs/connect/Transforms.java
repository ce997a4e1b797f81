import java.io.*;
import java.util.*;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.*;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Converts and transforms records as a worker of Kafka Connect does with the configuration of a sink: each transform applies to the
 * records for which its predicate holds (KIP-585). A line on standard input is a record: key, value and then names and values of
 * headers, in base64 but for the names, separated by tabs; "-" is null. A line on standard output is key and value of one that is left.
 */
final class Transforms {
    record Stage(Transformation<SinkRecord> transform, Predicate<SinkRecord> predicate, boolean negate) {}

    static Map<String, String> config = new HashMap<>();

    static Map<String, String> under(String prefix) {
        var own = new HashMap<String, String>();
        config.forEach((name, value) -> {
            if (name.startsWith(prefix + ".")) own.put(name.substring(prefix.length() + 1), value);
        });
        return own;
    }

    @SuppressWarnings("unchecked")
    static <T> T make(String type) throws Exception {
        return (T) Class.forName(type).getDeclaredConstructor().newInstance();
    }

    static byte[] bytes(String field) {
        return field.equals("-") ? null : Base64.getDecoder().decode(field);
    }

    static String text(Object value) {
        return value == null ? "-" : Base64.getEncoder().encodeToString(value.toString().getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        var file = new Properties();
        try (var in = new FileReader(args[0])) {
            file.load(in);
        }
        file.forEach((name, value) -> config.put((String) name, (String) value));
        Converter keys = make(config.get("key.converter")), values = make(config.get("value.converter"));
        HeaderConverter headers = make(config.get("header.converter"));
        keys.configure(Map.of(), true);
        values.configure(Map.of(), false);
        headers.configure(Map.of("converter.type", "header"));
        var predicates = new HashMap<String, Predicate<SinkRecord>>();
        for (String name : config.get("predicates").split(",")) {
            predicates.put(name, make(config.get("predicates." + name + ".type")));
            predicates.get(name).configure(under("predicates." + name));
        }
        var stages = new ArrayList<Stage>();
        for (String name : config.get("transforms").split(",")) {
            var own = under("transforms." + name);
            Transformation<SinkRecord> transform = make(own.remove("type"));
            stages.add(new Stage(transform, predicates.get(own.remove("predicate")), Boolean.parseBoolean(own.remove("negate"))));
            transform.configure(own);
        }
        String topic = config.get("topics"), line;
        var in = new BufferedReader(new InputStreamReader(System.in));
        while ((line = in.readLine()) != null) {
            String[] field = line.split("\t");
            var of = new ConnectHeaders();
            for (int i = 2; i < field.length; i += 2) of.add(field[i], headers.toConnectHeader(topic, field[i], bytes(field[i + 1])));
            var key = keys.toConnectData(topic, bytes(field[0]));
            var value = values.toConnectData(topic, bytes(field[1]));
            var left = new SinkRecord(topic, 0, key.schema(), key.value(), value.schema(), value.value(), 0, 0L, TimestampType.CREATE_TIME, of);
            for (Stage s : stages) {
                if (left != null && s.negate() != s.predicate().test(left)) left = s.transform().apply(left);
            }
            if (left != null) System.out.println(text(left.key()) + "\t" + text(left.value()));
        }
    }
}
