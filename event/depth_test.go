package event

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

func TestDepthOfJSON(t *testing.T) {
	for text, c := range map[string]struct{ valid, deep bool }{
		string(nested(MaxDepth)):                            {true, false},
		string(nested(MaxDepth + 1)):                        {false, true},
		`{"a":` + string(nested(MaxDepth)) + `}`:            {false, true},
		`["` + strings.Repeat("[", MaxDepth) + `\"[[", []]`: {true, false},
		strings.Repeat("[", MaxDepth+1):                     {false, true},
		strings.Repeat("[]", MaxDepth+1):                    {false, false},
		`"` + strings.Repeat("[", MaxDepth+1):               {false, false},
		"":                                                  {false, false},
	} {
		if got := Valid([]byte(text)); got != c.valid {
			t.Errorf("Valid(%.20q…) is %v", text, got)
		}
		if got := Deep([]byte(text)); got != c.deep {
			t.Errorf("Deep(%.20q…) is %v", text, got)
		}
		if err := CheckJSON([]byte(text)); (err == nil) != c.valid || c.deep != (err == errDeep) {
			t.Errorf("CheckJSON(%.20q…) is %v", text, err)
		}
	}
}

// A document does not get deeper by patches, by whichever operation, than it may
// be when it comes whole.
func TestPatchesDoNotNestWithoutEnd(t *testing.T) {
	within := nested(MaxDepth - 1)
	for name, c := range map[string]struct{ doc, fits, deep string }{
		"add":     {`{"a":{}}`, fmt.Sprintf(`[{"op":"add","path":"/a","value":%s}]`, within), fmt.Sprintf(`[{"op":"add","path":"/a/b","value":%s}]`, within)},
		"replace": {`{"a":{"b":1}}`, fmt.Sprintf(`[{"op":"replace","path":"/a","value":%s}]`, within), fmt.Sprintf(`[{"op":"replace","path":"/a/b","value":%s}]`, within)},
		"move":    {fmt.Sprintf(`{"a":%s,"b":[]}`, within), `[{"op":"move","from":"/a","path":"/c"}]`, `[{"op":"move","from":"/a","path":"/b/0"}]`},
		"copy":    {fmt.Sprintf(`{"a":%s,"b":[]}`, within), `[{"op":"copy","from":"/a","path":"/c"}]`, `[{"op":"copy","from":"/a","path":"/b/0"}]`},
	} {
		if next, err := Patch([]byte(c.doc), []byte(c.fits)); err != nil || !Valid(next) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Patch([]byte(c.doc), []byte(c.deep)); err == nil {
			t.Errorf("%s: nests deeper", name)
		}
	}
}

// What is copied is a thing of its own: a document within itself has no end.
func TestPatchCopiesByValue(t *testing.T) {
	got, err := Patch([]byte(`{"a":{"x":1}}`), []byte(`[{"op":"copy","from":"","path":"/a/b"},{"op":"replace","path":"/a/x","value":2}]`))
	if want := `{"a":{"b":{"a":{"x":1}},"x":2}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestPatchesTakeNoEndlessMemory(t *testing.T) {
	double := strings.TrimSuffix(strings.Repeat(`{"op":"copy","from":"","path":"/-"},`, 100), ",")
	if _, err := Patch([]byte(`["some text"]`), []byte("["+double+"]")); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a document doubled a hundred times: %v", err)
	}
}

// Whatever time an outsider names, the log's line can be read again.
func TestTimesBeyondTheForm(t *testing.T) {
	for _, said := range []string{"9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"} {
		var at, again Time
		if err := json.Unmarshal([]byte(`"`+said+`"`), &at); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(Encode(at), &again); err != nil || again.Sub(at.Time).Abs() > 24*time.Hour {
			t.Errorf("%s becomes %s, %v", said, Encode(at), err)
		}
	}
}
