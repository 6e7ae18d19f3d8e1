// Prints every setting that a Spark distribution defines in its core and Kubernetes modules, one per line:
// key, default, since, public, kind. Kinds are found by trying which values each setting's converter accepts.
//
// Compile and run with the distribution's jars/* on the class path; collect.py does this for several versions.

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;

public class Settings {
  private static final String CONFIG = "org.apache.spark.internal.config.";
  private static final String[] OBJECTS = {
    "org.apache.spark.deploy.k8s.Config$", CONFIG + "package$", CONFIG + "Deploy$", CONFIG + "History$",
    CONFIG + "Kryo$", CONFIG + "Network$", CONFIG + "Python$", CONFIG + "R$", CONFIG + "Status$",
    CONFIG + "Streaming$", CONFIG + "UI$", CONFIG + "Worker$",
  };

  public static void main(String[] args) throws Exception {
    for (String name : OBJECTS) {
      Class.forName(name).getField("MODULE$").get(null);
    }
    for (Map.Entry<String, Object> entry : new TreeMap<>(known()).entrySet()) {
      Object setting = entry.getValue();
      String value = (String) call(setting, "defaultValueString");
      System.out.println(String.join("\t", entry.getKey(), value.replace("\n", "\\n"),
          (String) call(setting, "version"), String.valueOf(call(setting, "isPublic")), kind(setting)));
    }
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> known() throws Exception {
    Class<?> companion = Class.forName(CONFIG + "ConfigEntry$");
    for (Field field : companion.getDeclaredFields()) {
      if (Map.class.isAssignableFrom(field.getType())) {
        field.setAccessible(true);
        return (Map<String, Object>) field.get(companion.getField("MODULE$").get(null));
      }
    }
    throw new IllegalStateException("no map of known settings");
  }

  private static Object call(Object target, String method) throws Exception {
    return target.getClass().getMethod(method).invoke(target);
  }

  private static String kind(Object setting) throws Exception {
    Object converter = call(setting, "valueConverter");
    Method apply = converter.getClass().getMethod("apply", Object.class);
    apply.setAccessible(true);
    boolean text = takes(apply, converter, "no value", "?x?", "abc");
    if (text) {
      return isList(apply, converter) ? "list" : "string";
    }
    if (takes(apply, converter, "true", "false")) return "boolean";
    boolean time = takes(apply, converter, "1s", "10s", "5min", "600s");
    boolean bytes = takes(apply, converter, "1k", "10k", "1g", "512k", "100g");
    if (time && !bytes) return "time";
    if (bytes && !time) return "bytes";
    if (takes(apply, converter, "0.5", "1.5", "0.01")) return "double";
    for (String number : new String[] {"1", "2", "10", "1024", "4040", "100000"}) {
      try {
        Object value = apply.invoke(converter, number);
        if (value instanceof scala.Option) value = ((scala.Option<?>) value).get();
        return value instanceof Integer ? "int" : value instanceof Long ? "long" : "string";
      } catch (ReflectiveOperationException refused) {
        // Outside the range this setting allows.
      }
    }
    return "string";
  }

  private static boolean isList(Method apply, Object converter) {
    try {
      Object sample = apply.invoke(converter, "a,b");
      if (sample instanceof scala.Option) sample = ((scala.Option<?>) sample).get();
      return sample instanceof scala.collection.Seq;
    } catch (ReflectiveOperationException refused) {
      return false;
    }
  }

  private static boolean takes(Method apply, Object converter, String... values) {
    for (String value : values) {
      try {
        apply.invoke(converter, value);
        return true;
      } catch (ReflectiveOperationException refused) {
        // Try the next.
      }
    }
    return false;
  }
}
