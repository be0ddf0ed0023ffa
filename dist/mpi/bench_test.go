//go:build linux && (mpi || cuda)

package mpi

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
)

// elements is the length of the vectors of BenchmarkSum: 40 MB of gradients.
const elements = 10_000_000

// BenchmarkSum compares dist.Sum with MPI_Allreduce for vectors of 40 MB, one on each of 2
// to 4 ranks, in the same job and in turns.
func BenchmarkSum(b *testing.B) {
	for ranks := 2; ranks <= 4; ranks++ {
		b.Run(fmt.Sprint("ranks=", ranks), func(b *testing.B) {
			status, out := launch(b, ranks, "sum", "LORAFUSE_TEST_TURNS="+fmt.Sprint(max(b.N, 9)))
			require.Zero(b, status, out)
			m := regexp.MustCompile(`sum (\d+) us, allreduce (\d+) us`).FindStringSubmatch(out)
			require.NotNil(b, m, out)
			sum, _ := strconv.ParseFloat(m[1], 64)
			reduce, _ := strconv.ParseFloat(m[2], 64)
			b.ReportMetric(sum/1000, "ms/sum")
			b.ReportMetric(reduce/1000, "ms/allreduce")
			b.ReportMetric(sum/reduce, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func init() {
	scenarios["sum"] = func(ctx context.Context, w dist.World) error {
		turns, err := strconv.Atoi(os.Getenv("LORAFUSE_TEST_TURNS"))
		if err != nil {
			return err
		}
		v, sum := make([]float32, elements), make([]float32, elements)
		for i := range v {
			v[i] = float32(i%1000 + w.Rank())
		}
		s := dist.NewSum(w, elements)
		fold := func() error {
			if err := s.Add(ctx, v, w.Size()); err != nil {
				return err
			}
			return s.Gather(ctx, sum)
		}
		reduce := w.(*world).allreduce(ctx, sum, v)
		var folds, reduces []time.Duration
		for turn := range turns + 1 {
			for _, x := range []struct {
				run   func() error
				times *[]time.Duration
			}{{fold, &folds}, {reduce, &reduces}} {
				if _, err := dist.Gather(ctx, w, nil); err != nil { // begin together
					return err
				}
				start := time.Now()
				if err := x.run(); err != nil {
					return err
				}
				if turn > 0 { // the first one maps memory
					*x.times = append(*x.times, time.Since(start))
				}
				if want := float32(w.Size()*7 + w.Size()*(w.Size()-1)/2); sum[1007] != want {
					return fmt.Errorf("sum %v, expected %v", sum[1007], want)
				}
				clear(sum)
			}
		}
		if w.Rank() == 0 {
			fmt.Printf("sum %d us, allreduce %d us\n", median(folds).Microseconds(), median(reduces).Microseconds())
		}
		return nil
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// allreduce returns a function that makes the library's own sum, which no rank can give up.
func (w *world) allreduce(ctx context.Context, sum, v []float32) func() error {
	so, err := purego.Dlopen(w.lib.path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return func() error { return err }
	}
	var call func(send, recv unsafe.Pointer, n int32, datatype, op, comm handle) int32
	purego.RegisterLibFunc(&call, so, "MPI_Allreduce")
	float, add := handle(0x4c00040a), handle(0x58000003)
	switch w.lib.abi {
	case standard:
		float, add = 0x210, 0x21
	case mpich:
	default:
		f, _ := purego.Dlsym(so, "ompi_mpi_float")
		a, _ := purego.Dlsym(so, "ompi_mpi_op_sum")
		float, add = handle(f), handle(a)
	}
	return func() error {
		return w.do(ctx, func() error {
			return w.lib.check("MPI_Allreduce", call(unsafe.Pointer(&v[0]), unsafe.Pointer(&sum[0]), int32(len(v)), float, add, w.comm))
		})
	}
}
