// A client of POST /rpc with nothing but the JDK: java.net.http, and readLine.
// It reads jobs from its standard input, one JSON object a line, does each on a
// thread and a connection of its own, and prints what it ended up with.
//
//   {"n":1,"urls":["http://…",…],"params":{… of agent.invoke},"slow":0}  ->  {"n":1,"state":{…}}
import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.util.*;

public class Client {
	static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

	public static void main(String[] args) throws Exception {
		var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		for (String line; (line = in.readLine()) != null; ) {
			var job = map(new Json(line).value());
			new Thread(() -> {
				var answer = new LinkedHashMap<String, Object>();
				answer.put("n", job.get("n"));
				try {
					answer.put("state", new Run(job).follow());
				} catch (Exception e) {
					answer.put("failed", e.toString());
				}
				synchronized (out) { out.println(Json.text(answer)); }
			}).start();
		}
	}

	/** A run, as far as its lines were read. */
	static class Run {
		final List<Object> urls;
		final Map<String, Object> params;
		final long slow;
		final HttpClient http = HttpClient.newHttpClient(); // a connection of its own

		String runId, after;
		final List<Object> ids = new ArrayList<>(), types = new ArrayList<>(), calls = new ArrayList<>(), results = new ArrayList<>();
		final Map<String, Object> deltas = new TreeMap<>(), whole = new TreeMap<>();
		Object end;
		int bad;

		Run(Map<String, Object> job) {
			urls = list(job.get("urls"));
			params = map(job.get("params"));
			slow = ((Number) job.get("slow")).longValue();
		}

		/** Reads to the answer, attaching again wherever the stream breaks off. */
		Map<String, Object> follow() throws Exception {
			for (int tries = 0; end == null; tries++) {
				if (tries == 50) throw new IOException("the run has no end");
				if (tries > 0) Thread.sleep(10);
				try {
					read((String) urls.get(tries % urls.size()));
				} catch (IOException e) {
					// the connection was lost: the run was not
				}
			}
			var state = new LinkedHashMap<String, Object>();
			state.put("types", types);
			state.put("ids", ids);
			state.put("deltas", deltas);
			state.put("whole", whole);
			state.put("calls", calls);
			state.put("results", results);
			state.put("bad", bad);
			state.put("end", end);
			return state;
		}

		void read(String url) throws IOException, InterruptedException {
			var call = new LinkedHashMap<String, Object>();
			call.put("jsonrpc", "2.0");
			call.put("id", 1L);
			call.put("method", after == null ? "agent.invoke" : "agent.attach");
			call.put("params", after == null ? params : attach());
			var request = HttpRequest.newBuilder(URI.create(url + "/rpc")).header("Content-Type", "application/json")
				.POST(HttpRequest.BodyPublishers.ofString(Json.text(call))).build();
			var response = http.send(request, HttpResponse.BodyHandlers.ofInputStream());
			try (var lines = new BufferedReader(new InputStreamReader(response.body(), StandardCharsets.UTF_8))) {
				for (String line; end == null && (line = lines.readLine()) != null; ) {
					if (slow > 0) Thread.sleep(slow);
					take(map(new Json(line).value()));
				}
			}
		}

		Map<String, Object> attach() {
			var p = new LinkedHashMap<String, Object>();
			p.put("run_id", runId);
			p.put("after", after);
			if (params.get("config") != null) p.put("config", params.get("config"));
			return p;
		}

		void take(Map<String, Object> line) {
			if (line.get("method") == null) {
				end = line.get("error") != null
					? "error " + map(line.get("error")).get("code") + " " + map(line.get("error")).get("message")
					: map(line.get("result")).get("status");
				return;
			}
			var e = map(line.get("params"));
			for (var name : List.of("event_id", "trace_id", "session_id", "created_at"))
				if (!(e.get(name) instanceof String s) || s.isEmpty()) bad++;
			var type = (String) e.get("type");
			if (type.equals("heartbeat")) return;
			types.add(type);
			ids.add(e.get("event_id"));
			after = (String) e.get("event_id");
			if (type.equals("session_started")) runId = (String) e.get("run_id");
			var message = (String) e.get("message_id");
			switch (type) {
				case "message_before" -> deltas.merge(message, e.get("delta"), (a, b) -> (String) a + b);
				case "message_discarded" -> {
					deltas.remove(message);
					whole.remove(message);
				}
				case "message_after" -> whole.put(message, e.get("text"));
				case "tool_call" -> calls.add(e.get("call_id") + " " + e.get("name"));
				case "tool_result" -> results.add(e.get("call_id") + " " + e.get("status"));
				default -> { }
			}
		}
	}

	@SuppressWarnings("unchecked")
	static Map<String, Object> map(Object v) { return (Map<String, Object>) v; }

	@SuppressWarnings("unchecked")
	static List<Object> list(Object v) { return (List<Object>) v; }

	/** As much of JSON as there is, since the JDK has none. */
	static class Json {
		final String s;
		int at;

		Json(String s) { this.s = s; }

		Object value() {
			char c = next();
			switch (c) {
				case '{': {
					var m = new LinkedHashMap<String, Object>();
					for (at++; next() != '}'; ) {
						if (s.charAt(at) == ',') { at++; next(); }
						var name = string();
						next();
						at++; // the colon
						m.put(name, value());
					}
					at++;
					return m;
				}
				case '[': {
					var l = new ArrayList<Object>();
					for (at++; next() != ']'; ) {
						if (s.charAt(at) == ',') at++;
						l.add(value());
					}
					at++;
					return l;
				}
				case '"': return string();
				case 't': at += 4; return true;
				case 'f': at += 5; return false;
				case 'n': at += 4; return null;
			}
			int from = at;
			while (at < s.length() && "+-.0123456789eE".indexOf(s.charAt(at)) >= 0) at++;
			if (from == at) throw new IllegalArgumentException("no JSON at " + at + ": " + s);
			var number = s.substring(from, at);
			return number.matches("-?\\d{1,18}") ? (Object) Long.parseLong(number) : (Object) new java.math.BigDecimal(number);
		}

		/** The next character that is no space. */
		char next() {
			while (" \t\r\n".indexOf(s.charAt(at)) >= 0) at++;
			return s.charAt(at);
		}

		String string() {
			if (s.charAt(at) != '"') throw new IllegalArgumentException("no string at " + at + ": " + s);
			var b = new StringBuilder();
			for (at++; s.charAt(at) != '"'; at++) {
				char c = s.charAt(at);
				if (c != '\\') { b.append(c); continue; }
				c = s.charAt(++at);
				switch (c) {
					case 'n' -> b.append('\n');
					case 'r' -> b.append('\r');
					case 't' -> b.append('\t');
					case 'b' -> b.append('\b');
					case 'f' -> b.append('\f');
					case 'u' -> { b.append((char) Integer.parseInt(s.substring(at + 1, at + 5), 16)); at += 4; }
					default -> b.append(c);
				}
			}
			at++;
			return b.toString();
		}

		static String text(Object v) {
			if (v instanceof Map<?, ?> m) {
				var parts = new ArrayList<String>();
				m.forEach((k, x) -> parts.add(text(k) + ":" + text(x)));
				return "{" + String.join(",", parts) + "}";
			}
			if (v instanceof List<?> l) return "[" + String.join(",", l.stream().map(Json::text).toList()) + "]";
			if (!(v instanceof String s)) return String.valueOf(v);
			var b = new StringBuilder("\"");
			for (char c : s.toCharArray()) {
				if (c == '"' || c == '\\') b.append('\\').append(c);
				else if (c < ' ' || Character.isSurrogate(c) || c == '\u2028' || c == '\u2029') b.append(String.format("\\u%04x", (int) c));
				else b.append(c);
			}
			return b.append('"').toString();
		}
	}
}
