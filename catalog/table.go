package catalog

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"
)

// kind is a column's SQL type.
type kind string

const (
	text   kind = "text"
	bigint kind = "bigint"
	double kind = "double precision"
)

type column struct {
	name string
	kind kind
}

// A table writes and reads many rows by one statement of fixed text: the rows,
// or their keys, are one parameter, a JSON array of arrays. All that the two
// engines do differently is how they unfold it.
type table[R any] struct {
	name   string
	key    []string // text columns
	rest   []column // the first one is seq
	fields func(*R) []any
}

func (t table[R]) columns() []string {
	names := append([]string(nil), t.key...)
	for _, c := range t.rest {
		names = append(names, c.name)
	}
	return names
}

// list is the select list of a query that scan reads.
func (t table[R]) list() string {
	return t.name + "." + strings.Join(t.columns(), ", "+t.name+".")
}

// upsert writes rows, each key at most once. A row that is stored with the same
// or a later seq stays.
func (t table[R]) upsert(ctx context.Context, tx *sql.Tx, e engine, rows []*R) error {
	if len(rows) == 0 {
		return nil
	}
	all := make([][]any, len(rows))
	for i, r := range rows {
		all[i] = t.fields(r)
	}
	_, err := tx.ExecContext(ctx, t.upsertSQL(e), array(all))
	return err
}

func (t table[R]) upsertSQL(e engine) string {
	values, sets := make([]string, 0, len(t.key)+len(t.rest)), make([]string, 0, len(t.rest))
	for i := range t.key {
		values = append(values, element(i, text))
	}
	for _, c := range t.rest {
		values = append(values, element(len(values), c.kind))
		sets = append(sets, c.name+" = excluded."+c.name)
	}
	return "insert into " + t.name + " (" + strings.Join(t.columns(), ", ") + ")" +
		" select " + strings.Join(values, ", ") + " from " + e.rows + " where true" +
		" on conflict (" + strings.Join(t.key, ", ") + ") do update set " + strings.Join(sets, ", ") +
		" where " + t.name + ".seq < excluded.seq"
}

// load reads the rows whose columns by have one of the values in keys. tail may
// narrow the rows and say that they will be changed.
func (t table[R]) load(ctx context.Context, tx *sql.Tx, e engine, by []string, keys [][]string, tail string) ([]*R, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	query := "select " + t.list() + " from " + t.name + " where " + in(by, e) + tail
	rows, err := tx.QueryContext(ctx, query, array(keys))
	if err != nil {
		return nil, err
	}
	return t.scan(rows)
}

// remove deletes the rows with these keys.
func (t table[R]) remove(ctx context.Context, tx *sql.Tx, e engine, keys [][]string) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, "delete from "+t.name+" where "+in(t.key, e), array(keys))
	return err
}

// scan reads all rows of a query for list and closes it.
func (t table[R]) scan(rows *sql.Rows) ([]*R, error) {
	defer rows.Close()
	var all []*R
	for rows.Next() {
		r := new(R)
		if err := rows.Scan(t.fields(r)...); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// in is the condition that the columns hold one of the parameter's rows.
func in(columns []string, e engine) string {
	elements := make([]string, len(columns))
	for i := range columns {
		elements[i] = element(i, text)
	}
	return "(" + strings.Join(columns, ", ") + ") in (select " + strings.Join(elements, ", ") + " from " + e.rows + ")"
}

func element(i int, k kind) string {
	if k == text {
		return "j.value->>" + strconv.Itoa(i)
	}
	return "cast(j.value->>" + strconv.Itoa(i) + " as " + string(k) + ")"
}

// array encodes a parameter. HTML characters stay, since they are data here.
func array(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("encode rows: " + err.Error()) // strings and numbers always can be
	}
	return b.String()
}
