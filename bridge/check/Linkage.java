import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.lang.reflect.Executable;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Resolves every class, method and field that the classes of a jar refer to, as the JVM would on first use, and checks that no
 * class leaves an abstract method unimplemented. The class path is the Spark to check against.
 *
 * usage: java -cp JAR:SPARK/jars/* Linkage.java JAR NAME
 */
public class Linkage {
    private static int references;
    private static final List<String> missing = new ArrayList<>();
    /** The classes of the jar, by their file names in it. */
    private static final Set<String> own = new HashSet<>();

    public static void main(String[] arguments) throws Exception {
        try (JarFile jar = new JarFile(arguments[0])) {
            jar.stream().forEach(entry -> own.add(entry.getName()));
            for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements();) {
                JarEntry entry = entries.nextElement();
                if (entry.getName().endsWith(".class")) {
                    try (InputStream in = jar.getInputStream(entry)) {
                        check(entry.getName().replace(".class", ""), new DataInputStream(in));
                    }
                }
            }
        }
        missing.forEach(sentence -> System.err.println(arguments[1] + ": " + sentence));
        System.out.println("Spark " + arguments[1] + ": " + references + " references, " + missing.size() + " missing");
        System.exit(missing.isEmpty() ? 0 : 1);
    }

    private static void check(String name, DataInputStream in) throws IOException {
        in.readInt();
        in.readInt();
        int count = in.readUnsignedShort();
        String[] text = new String[count];
        int[][] entry = new int[count][];
        for (int i = 1; i < count; i++) {
            int tag = in.readUnsignedByte();
            switch (tag) {
                case 1:
                    text[i] = in.readUTF();
                    break;
                case 3:
                case 4:
                    in.readInt();
                    break;
                case 5:
                case 6:
                    in.readLong();
                    i++;
                    break;
                case 7:
                case 8:
                case 16:
                    entry[i] = new int[] {tag, in.readUnsignedShort()};
                    break;
                case 15:
                    in.readUnsignedByte();
                    in.readUnsignedShort();
                    break;
                default:
                    entry[i] = new int[] {tag, in.readUnsignedShort(), in.readUnsignedShort()};
            }
        }
        for (int[] each : entry) {
            if (each != null && each[0] == 7) {
                load(name, text[each[1]]);
            } else if (each != null && each[0] >= 9 && each[0] <= 11) {
                int[] member = entry[each[2]];
                member(name, text[entry[each[1]][1]], text[member[1]], text[member[2]], each[0] == 9);
            }
        }
        complete(load(name, name));
    }

    private static Class<?> load(String user, String name) {
        references++;
        try {
            return Class.forName(name.replace('/', '.'), false, Linkage.class.getClassLoader());
        } catch (ClassNotFoundException | LinkageError e) {
            missing.add(user + " uses " + name + ": " + e);
            return null;
        }
    }

    private static void member(String user, String owner, String name, String descriptor, boolean field) {
        Class<?> type = load(user, owner);
        if (type == null) {
            return;
        }
        try {
            if (field ? !hasField(type, name, descriptor) : !hasMethod(type, name, descriptor)) {
                missing.add(user + " uses " + owner + "." + name + " " + descriptor);
            }
        } catch (LinkageError | TypeNotPresentException e) {
            missing.add(user + " uses " + owner + "." + name + " " + descriptor + ": " + e);
        }
    }

    private static boolean hasField(Class<?> type, String name, String descriptor) {
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (field.getName().equals(name) && describe(field.getType()).equals(descriptor)) {
                    return reachable(type, field.getDeclaringClass(), field.getModifiers());
                }
            }
        }
        return false;
    }

    private static boolean hasMethod(Class<?> type, String name, String descriptor) {
        if (name.equals("<init>")) {
            return Arrays.stream(type.getDeclaredConstructors()).anyMatch(each -> describe(each, void.class).equals(descriptor)
                    && reachable(type, type, each.getModifiers()));
        }
        for (Class<?> at = type; at != null; at = at.getSuperclass()) {
            if (declares(at, type, name, descriptor)) {
                return true;
            }
        }
        // MethodHandle.invoke and similar methods accept anything; lambdas do not call them by name.
        return Arrays.stream(type.getMethods()).anyMatch(each -> each.getName().equals(name)
                && describe(each, each.getReturnType()).equals(descriptor))
                || type.isInterface() && declares(Object.class, type, name, descriptor);
    }

    private static boolean declares(Class<?> at, Class<?> user, String name, String descriptor) {
        for (Method method : at.getDeclaredMethods()) {
            if (method.getName().equals(name) && describe(method, method.getReturnType()).equals(descriptor)) {
                return reachable(user, at, method.getModifiers());
            }
        }
        return false;
    }

    /** Our own classes may use each other's members; of other classes, only public or (in subclasses) protected members. */
    private static boolean reachable(Class<?> user, Class<?> owner, int modifiers) {
        return own.contains(owner.getName().replace('.', '/') + ".class") || Modifier.isPublic(modifiers) || Modifier.isProtected(modifiers);
    }

    private static String describe(Executable executable, Class<?> result) {
        return MethodType.methodType(result, executable.getParameterTypes()).toMethodDescriptorString();
    }

    private static String describe(Class<?> type) {
        String method = MethodType.methodType(type).toMethodDescriptorString();
        return method.substring(method.indexOf(')') + 1);
    }

    /** A concrete class implements every abstract method of its ancestors. */
    private static void complete(Class<?> type) {
        if (type == null || Modifier.isAbstract(type.getModifiers())) {
            return;
        }
        for (Method method : type.getMethods()) {
            if (Modifier.isAbstract(method.getModifiers())) {
                missing.add(type.getName() + " has no body for " + method);
            }
        }
        for (Class<?> at = type.getSuperclass(); at != null; at = at.getSuperclass()) {
            for (Method method : at.getDeclaredMethods()) {
                if (Modifier.isAbstract(method.getModifiers())
                        && Arrays.stream(type.getMethods()).noneMatch(each -> each.getName().equals(method.getName())
                                && !Modifier.isAbstract(each.getModifiers())
                                && describe(each, each.getReturnType()).equals(describe(method, method.getReturnType())))) {
                    missing.add(type.getName() + " has no body for " + method);
                }
            }
        }
    }
}
