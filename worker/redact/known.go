package redact

// known finds every form of every known secret in one pass: an Aho-Corasick
// automaton. Its state after some text is the longest end of that text that
// begins a form, which is exactly what a Stream has to keep back.
type known struct {
	root  [256]int32 // where the first byte of a form leads, 0 for nowhere
	nodes []node     // nodes[0] is the root
	edges []edge     // of all nodes, each node's together
	dense [][256]int32
}

type node struct {
	first, count int32 // its edges
	dense        int32 // index of its table plus one, if it has many edges
	fail         int32 // node of the longest proper end that begins a form
	depth        int32 // length of the text it stands for
	match        int32 // length of the longest form that ends here, or 0
}

type edge struct {
	b  byte
	to int32
}

// maxEdges is how many edges are searched one by one.
const maxEdges = 4

func newKnown(values map[string]bool) *known {
	if len(values) == 0 {
		return nil
	}
	k := &known{nodes: make([]node, 1)}
	kids := make([][]edge, 1)
	for v := range values {
		for _, f := range forms(v) {
			kids = k.insert(kids, f)
		}
	}
	k.pack(kids)
	k.link(kids)
	return k
}

// insert adds a form to the tree of nodes.
func (k *known) insert(kids [][]edge, form string) [][]edge {
	at := int32(0)
	for i := 0; i < len(form); i++ {
		to := find(kids[at], form[i])
		if to == 0 {
			to = int32(len(k.nodes))
			k.nodes = append(k.nodes, node{depth: int32(i + 1)})
			kids = append(kids, nil)
			kids[at] = append(kids[at], edge{form[i], to})
		}
		at = to
	}
	k.nodes[at].match = int32(len(form))
	return kids
}

func find(edges []edge, b byte) int32 {
	for _, e := range edges {
		if e.b == b {
			return e.to
		}
	}
	return 0
}

// pack lays the edges out for reading.
func (k *known) pack(kids [][]edge) {
	for i, edges := range kids {
		n := &k.nodes[i]
		n.first, n.count = int32(len(k.edges)), int32(len(edges))
		k.edges = append(k.edges, edges...)
		if len(edges) > maxEdges {
			n.dense = int32(len(k.dense) + 1)
			k.dense = append(k.dense, table(edges))
		}
	}
	k.root = table(kids[0])
}

func table(edges []edge) (t [256]int32) {
	for _, e := range edges {
		t[e.b] = e.to
	}
	return t
}

// link sets the fail links, in order of depth.
func (k *known) link(kids [][]edge) {
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, e := range kids[at] {
			n := &k.nodes[e.to]
			if at != 0 {
				n.fail = k.step(k.nodes[at].fail, e.b)
			}
			if n.match == 0 {
				n.match = k.nodes[n.fail].match
			}
			queue = append(queue, e.to)
		}
	}
}

// step follows one byte.
func (k *known) step(at int32, b byte) int32 {
	for at != 0 {
		if to := k.child(at, b); to != 0 {
			return to
		}
		at = k.nodes[at].fail
	}
	return k.root[b]
}

func (k *known) child(at int32, b byte) int32 {
	n := &k.nodes[at]
	if n.dense != 0 {
		return k.dense[n.dense-1][b]
	}
	return find(k.edges[n.first:n.first+n.count], b)
}

// scanKnown covers the known values in what was added, and returns where the
// longest possible beginning of one begins.
func (s *scanner) scanKnown() int {
	k := s.rules.known
	if k == nil {
		return len(s.buf)
	}
	at := s.node
	for i := s.seen; i < len(s.buf); i++ {
		at = k.step(at, s.buf[i])
		if m := k.nodes[at].match; m > 0 {
			s.spans.cover(i+1-int(m), i+1, Mark)
		}
	}
	s.seen, s.node = len(s.buf), at
	return len(s.buf) - int(k.nodes[at].depth)
}
