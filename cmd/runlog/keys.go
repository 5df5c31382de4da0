package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/recorder"
)

func migrateCommand(ctx context.Context, args []string) error {
	s, err := parse("migrate", args, catalogSettings)
	if err != nil {
		return err
	}
	if err := s.makeDirs(); err != nil {
		return err
	}
	db, err := s.openCatalog(ctx, true)
	if err != nil {
		return err
	}
	fmt.Println("the catalog is up to date")
	return db.Close()
}

func reindexCommand(ctx context.Context, args []string) error {
	s, err := parse("reindex", args, storeSettings)
	if err != nil {
		return err
	}
	st, err := s.openAs(ctx, "reindex")
	if err != nil {
		return err
	}
	defer st.close()
	if err := recorder.New(st.log, st.catalog, recorder.Options{Log: s.log}).Reindex(ctx); err != nil {
		return err
	}
	fmt.Println("the catalog is rebuilt from the log")
	return nil
}

func keysCommand(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("%w: runlog keys create|list|revoke [--tenant NAME] …", errUsage)
	}
	var tenant, name, scopes, id string
	s, err := parse("keys "+args[0], args[1:], catalogSettings, func(f *flag.FlagSet, _ *settings) {
		f.StringVar(&tenant, "tenant", "default", "whose key it is")
		f.StringVar(&name, "name", "", "create: what it is for; shown as who asked")
		f.StringVar(&scopes, "scopes", "", "create: separated by commas; audit may see internal events")
		f.StringVar(&id, "id", "", "revoke: the key's id")
	})
	if err != nil {
		return err
	}
	if err := s.makeDirs(); err != nil {
		return err
	}
	db, err := s.openCatalog(ctx, false)
	if err != nil {
		return err
	}
	defer db.Close()
	switch args[0] {
	case "create":
		return createKey(ctx, db, tenant, name, scopes)
	case "list":
		return listKeys(ctx, db, tenant)
	case "revoke":
		if id == "" {
			return fmt.Errorf("%w: runlog keys revoke --id ID; runlog keys list shows them", errUsage)
		}
		_, err := db.RevokeKey(ctx, tenant, id)
		return err
	}
	return fmt.Errorf("%w: runlog keys %s: create, list or revoke", errUsage, args[0])
}

func createKey(ctx context.Context, db *catalog.DB, tenant, name, scopes string) error {
	secret, key, err := db.CreateKey(ctx, tenant, name, list(scopes))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "key %s of tenant %s; it is shown only now:\n", key.ID, tenant)
	fmt.Println(secret)
	return nil
}

func listKeys(ctx context.Context, db *catalog.DB, tenant string) error {
	keys, err := db.Keys(ctx, tenant)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSCOPES\tCREATED\tSTATE")
	for _, k := range keys {
		state := "valid"
		if k.Revoked != nil {
			state = "revoked"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.ID, k.Name, strings.Join(k.Scopes, ","), k.Created.Format("2006-01-02"), state)
	}
	return w.Flush()
}
