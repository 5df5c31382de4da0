package artifacts_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/runlog-dev/runlog/artifacts"
)

func Example() {
	dir, err := os.MkdirTemp("", "artifacts-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store, err := artifacts.Open(ctx, "dir:"+dir, artifacts.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	key := artifacts.Key{Tenant: "acme", ID: "art_1"}
	w, err := store.Create(ctx, key, artifacts.Meta{Name: "отчёт.txt", MediaType: "text/plain"})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort()
	fmt.Fprint(w, "hello, ")
	fmt.Fprint(w, "world")
	info, err := w.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Key, info.Name, info.Bytes, info.SHA256[:8])
	// Output: acme/art_1 отчёт.txt 12 09ca7e4e
}
