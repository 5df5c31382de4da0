package catalog_test

import (
	"testing"

	"github.com/runlog-dev/runlog/catalog/catalogtest"
)

// BenchmarkApplyAt projects a long log in batches of 500 events, of which about
// three in four are projected.
func BenchmarkApplyAt(b *testing.B) {
	for name, url := range engines {
		b.Run(name, func(b *testing.B) {
			db, log := open(b, url(b)), catalogtest.NewLog(1, 40, 5000)
			b.ResetTimer()
			at := 0
			for range b.N {
				end := at + 500
				if end > len(log.Entries) {
					b.Fatal("the log is too short for so many batches: use a smaller -benchtime")
				}
				if err := db.ApplyAt(b.Context(), 0, uint64(at), uint64(end), catalogtest.Grouped(log.Entries[at:end])); err != nil {
					b.Fatal(err)
				}
				at = end
			}
			b.ReportMetric(float64(at)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
