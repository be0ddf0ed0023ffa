package pool

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a pool that the test closes.
func open(t testing.TB, workers int) *Pool {
	p := New(workers)
	t.Cleanup(p.Close)
	return p
}

func TestEveryTaskRunsOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 7} {
		p := open(t, workers)
		require.Equal(t, workers, p.Workers())
		for _, n := range []int{-1, 0, 1, 2, 3, 8, 100} {
			for range 50 {
				ran := make([]int32, max(n, 0)) // not atomic: -race sees a task run twice
				p.Run(n, func(i int) { ran[i]++ })
				for i := range ran {
					require.EqualValues(t, 1, ran[i], "%d workers: task %d of %d", workers, i, n)
				}
				p.RunWorker(n, func(_, i int) { ran[i]++ })
				for i := range ran {
					require.EqualValues(t, 2, ran[i], "%d workers: task %d of %d", workers, i, n)
				}
			}
		}
	}
}

// Workers take neighbouring tasks: the first two to begin are those of the two
// halves, but where a worker was still looking for work of the other's.
func TestNeighbours(t *testing.T) {
	p := open(t, 2)
	apart := 0
	for range 100 {
		var both sync.WaitGroup
		both.Add(2)
		first := [2]int{-1, -1}
		p.RunWorker(10, func(w, i int) {
			if first[w] < 0 {
				first[w] = i
				both.Done()
				both.Wait()
			}
		})
		if first == [2]int{0, 5} {
			apart++
		}
	}
	assert.Greater(t, apart, 50)
}

// A worker that has come to the end of its own tasks takes those of others.
func TestNoTaskIsLeftToItsWorker(t *testing.T) {
	p := open(t, 2)
	var others sync.WaitGroup
	others.Add(9)
	p.Run(10, func(i int) {
		if i == 0 {
			others.Wait() // until another worker has taken the rest
			return
		}
		others.Done()
	})
}

// What is done meanwhile is done by workers without a task, by each alone, and
// not after it has said that it has no more.
func TestMeanwhile(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 3 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3)) // workers wait without parking
	}
	p := New(3)
	defer p.Close()
	const most = 20
	var bites [3]int // not atomic
	var done atomic.Int64
	p.SetIdleWork(func(worker int) bool {
		if bites[worker] == most {
			return false
		}
		bites[worker]++
		done.Add(1)
		return true
	})
	p.Run(2, func(i int) {
		for i == 0 && done.Load() < most { // until another has done all that it has
			runtime.Gosched()
		}
	})
	p.Close() // before bites are read
	assert.GreaterOrEqual(t, bites[0]+bites[1]+bites[2], most)
}

func TestWorkersByDefault(t *testing.T) {
	assert.Equal(t, runtime.GOMAXPROCS(0), open(t, 0).Workers())
}

// All workers take part: each waits in its task until all are there.
func TestTasksRunAtOnce(t *testing.T) {
	p := open(t, 5)
	var here sync.WaitGroup
	here.Add(5)
	p.Run(5, func(int) { here.Done(); here.Wait() })
}

func TestWorkerNumbersAreExclusive(t *testing.T) {
	p := open(t, 4)
	var state [4]int // not atomic
	var callers sync.WaitGroup
	for range 3 {
		callers.Go(func() {
			for range 100 {
				p.RunWorker(7, func(w, _ int) { state[w]++ })
			}
		})
	}
	callers.Wait()
	assert.Equal(t, 3*100*7, state[0]+state[1]+state[2]+state[3])
}

func TestConcurrentRuns(t *testing.T) {
	p := open(t, 3)
	var total atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 200 {
				p.Run(9, func(int) { total.Add(1) })
			}
		})
	}
	callers.Wait()
	assert.EqualValues(t, 4*200*9, total.Load())
}

func TestNestedRunIsInline(t *testing.T) {
	p := open(t, 3)
	var total atomic.Int64
	p.Run(6, func(int) {
		before := goroutine()
		p.Run(5, func(int) {
			assert.Equal(t, before, goroutine())
			p.Run(2, func(int) { total.Add(1) })
		})
	})
	assert.EqualValues(t, 6*5*2, total.Load())
}

// goroutine names the running goroutine.
func goroutine() string {
	buf := make([]byte, 32)
	return string(buf[:runtime.Stack(buf, false)])
}

func TestNestedRunWorkerPanics(t *testing.T) {
	p := open(t, 2)
	for _, run := range []func(func(int)){
		func(task func(int)) { p.Run(4, task) },
		func(task func(int)) { p.RunWorker(4, func(_, i int) { task(i) }) },
	} {
		fail := recovered(func() {
			run(func(int) { p.RunWorker(2, func(int, int) {}) })
		})
		require.NotNil(t, fail)
		assert.Contains(t, fail.Error(), "from inside a task")
	}
}

// recovered is the Panic that f ends with.
func recovered(f func()) (fail *Panic) {
	defer func() { fail, _ = recover().(*Panic) }()
	f()
	return nil
}

var errTask = errors.New("task")

func explode(int) { panic(errTask) }

func TestPanicReachesTheCaller(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		p := open(t, workers)
		for _, n := range []int{1, 2, 40} {
			for guilty := range n {
				fail := recovered(func() {
					p.Run(n, func(i int) {
						if i == guilty {
							explode(i)
						}
					})
				})
				require.NotNil(t, fail, "%d workers, task %d of %d", workers, guilty, n)
				assert.ErrorIs(t, fail, errTask)
				assert.Contains(t, string(fail.Stack), "pool.explode")
				assert.Contains(t, fail.Error(), "a task panicked: task")
			}
			var total atomic.Int64 // the pool still works
			p.Run(10, func(int) { total.Add(1) })
			require.EqualValues(t, 10, total.Load())
		}
	}
}

func TestPanicOfANestedRunKeepsItsStack(t *testing.T) {
	p := open(t, 2)
	fail := recovered(func() {
		p.Run(2, func(int) { p.Run(2, explode) })
	})
	require.NotNil(t, fail)
	assert.Equal(t, errTask, fail.Value)
	assert.Contains(t, string(fail.Stack), "pool.explode")
}

// A task that ends its goroutine, as a failing test does, ends neither the
// worker nor the run.
func TestGoexit(t *testing.T) {
	p := open(t, 3)
	for range 20 {
		returned := make(chan *Panic, 1)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			returned <- recovered(func() { p.Run(3, func(int) { runtime.Goexit() }) })
		}()
		<-gone
		var total atomic.Int64
		p.Run(10, func(int) { total.Add(1) })
		require.EqualValues(t, 10, total.Load())
	}
}

func TestFewerProcessorsThanWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := open(t, 4)
	start := time.Now()
	var total atomic.Int64
	for range 2000 {
		p.Run(8, func(int) { total.Add(1) })
	}
	assert.EqualValues(t, 2000*8, total.Load())
	// A worker that waits for preemption would cost 10 ms of each run.
	assert.Less(t, time.Since(start), 10*time.Second)
}

// Workers that have parked come back.
func TestRunAfterIdling(t *testing.T) {
	p := open(t, 3)
	for range 5 {
		time.Sleep(4 * spinFor)
		var here sync.WaitGroup
		here.Add(3)
		p.Run(3, func(int) { here.Done(); here.Wait() })
	}
}

// A caller waits for a task much longer than it spins.
func TestLongTask(t *testing.T) {
	p := open(t, 2)
	var total atomic.Int64
	p.Run(2, func(i int) {
		time.Sleep(time.Duration(i) * 40 * spinFor)
		total.Add(1)
	})
	assert.EqualValues(t, 2, total.Load())
}

func TestClosed(t *testing.T) {
	p := New(3)
	p.Close()
	p.Close()
	total := 0
	p.Run(5, func(int) { total++ })
	p.RunWorker(5, func(w, _ int) { assert.Zero(t, w); total++ })
	assert.Equal(t, 10, total)
}

func TestNilPool(t *testing.T) {
	var p *Pool
	total := 0
	p.Run(5, func(int) { total++ })
	p.RunWorker(5, func(w, _ int) { assert.Zero(t, w); total++ })
	p.Close()
	assert.Equal(t, 10, total)
	assert.Equal(t, 1, p.Workers())
}

func TestNoAllocations(t *testing.T) {
	p := open(t, 2)
	plain, named := func(int) {}, func(int, int) {}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.Run(8, plain)
		p.RunWorker(8, named)
	}))
}

func BenchmarkRun(b *testing.B) {
	p := open(b, 0)
	task := func(int) {}
	for b.Loop() {
		p.Run(p.Workers(), task)
	}
}
