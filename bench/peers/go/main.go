// Command worker measures three Go locks, rueidislock, redsync and redislock, like the benchmark's own systems: it gets the
// same tasks in the same protocol. See README.md, "The protocol of a worker".
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
)

// spec is the task of a worker, one line of JSON on its standard input.
type spec struct {
	System string `json:"system"`
	URL    string `json:"url"`
	// Nodes are the servers of the lock, if it is on several; the counter is at URL all the same.
	Nodes   []string          `json:"nodes"`
	Threads int               `json:"threads"`
	Tasks   int               `json:"tasks"`
	Names   map[string]string `json:"names"`
	Counter *string           `json:"counter"`
	Span    span              `json:"span"`
	// PauseUs is the average pause between two pairs.
	PauseUs int64 `json:"pause_us"`
}

// span has one of the two fields.
type span struct {
	Window *struct {
		WarmUpMs int64 `json:"warm_up_ms"`
		WindowMs int64 `json:"window_ms"`
	} `json:"window"`
	Pairs *struct {
		Each uint64 `json:"each"`
	} `json:"pairs"`
}

// report is the report of a worker at the end, one line of JSON.
type report struct {
	Served    []uint64    `json:"served"`
	Pairs     uint64      `json:"pairs"`
	CountedUs int64       `json:"counted_us"`
	CPUUs     int64       `json:"cpu_us"`
	Waits     [][2]uint64 `json:"waits"`
}

// locker makes locks; counter increments the counter, on a connection apart from the locks'.
type locker interface {
	lock(name string) lock
	countUp(key string) error
}

// lock is one task's lock of one name. The function that acquire returns releases it.
type lock interface {
	acquire() (release func() error, err error)
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--about" {
		check(json.NewEncoder(os.Stdout).Encode(map[string]any{"systems": about()}))
		return
	}
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadString('\n')
	check(err)
	var task spec
	check(json.Unmarshal([]byte(line), &task))
	if task.Window() == (task.Span.Pairs != nil) || len(task.Names) != 1 {
		check(errors.New("the task must have one kind of span and one kind of names"))
	}
	runtime.GOMAXPROCS(task.Threads)
	locks, err := connect(&task)
	check(err)
	if _, used := task.Names["used"]; used {
		allTasks(locks, &task)
	}
	fmt.Println("ready")
	if line, err = input.ReadString('\n'); err != nil || strings.TrimSpace(line) != "go" {
		check(errors.New("the run was aborted"))
	}
	told, _ := json.Marshal(measure(locks, &task))
	fmt.Println(string(told))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go peer:", err)
		os.Exit(1)
	}
}

func connect(task *spec) (locker, error) {
	url, nodes := task.URL, task.Nodes
	switch task.System {
	case "rueidislock":
		return newRueidis(url, rueidisDefaults)
	case "rueidislock-1":
		return newRueidis(url, rueidisOneNode)
	case "redsync":
		return newRedsync(url, nodes)
	case "redsync-fast":
		return newRedsync(url, nodes, redsync.WithRetryDelay(time.Duration(fastMs())*time.Millisecond))
	case "redislock":
		return newRedislock(url, redislockRetryMs)
	case "redislock-fast":
		return newRedislock(url, fastMs())
	}
	return nil, fmt.Errorf("no such system here: %q", task.System)
}

type described struct {
	Version  string `json:"version"`
	Settings string `json:"settings"`
}

func about() map[string]described {
	versions := map[string]string{}
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			versions[module.Path] = module.Version
		}
	}
	rueidis := versions["github.com/redis/rueidis"]
	built := ", " + runtime.Version()
	onGoRedis := ", go-redis " + versions["github.com/redis/go-redis/v9"] + built
	redsync := versions["github.com/go-redsync/redsync/v4"] + onGoRedis
	redislock := versions["github.com/bsm/redislock"] + onGoRedis
	fast := fmt.Sprintf(redsyncFastText, fastMs())
	return map[string]described{
		"rueidislock":    {rueidis + built, rueidisDefaultsText},
		"rueidislock-1":  {rueidis + built, rueidisOneNodeText},
		"redsync":        {redsync, redsyncText + redsyncRestText},
		"redsync-fast":   {redsync, fast + redsyncRestText},
		"redislock":      {redislock, fmt.Sprintf(redislockText, redislockRetryMs)},
		"redislock-fast": {redislock, fmt.Sprintf(redislockText, fastMs())},
	}
}

// fastMs is the delay of redsync-fast and redislock-fast, or another one to be tried. The README explains the choice.
func fastMs() int {
	told, ok := os.LookupEnv("PEER_RETRY_MS")
	if !ok {
		return 5
	}
	ms, err := strconv.Atoi(told)
	check(err)
	return ms
}

func (s *spec) Window() bool { return s.Span.Window != nil }

// limit is the time after which a run counts as hanging: no lock waits for as long.
func (s *spec) limit() time.Duration {
	const spare = time.Minute
	if s.Window() {
		return time.Duration(s.Span.Window.WarmUpMs+s.Span.Window.WindowMs)*time.Millisecond + spare
	}
	return time.Duration(s.Span.Pairs.Each)*20*time.Millisecond + spare
}

func measure(locks locker, task *spec) report {
	begun, cpuBefore := time.Now(), cpuUs()
	tallies := allTasks(locks, task)
	told := report{CPUUs: cpuUs() - cpuBefore, CountedUs: time.Since(begun).Microseconds(), Waits: [][2]uint64{}}
	if task.Window() {
		told.CountedUs = task.Span.Window.WindowMs * 1000
	}
	all := map[uint64]uint64{}
	for _, one := range tallies {
		told.Served = append(told.Served, one.served)
		told.Pairs += one.pairs
		for us, count := range one.waits {
			all[us] += count
		}
	}
	for us, count := range all {
		told.Waits = append(told.Waits, [2]uint64{us, count})
	}
	return told
}

// cpuUs is the processor time of all threads of this process so far.
func cpuUs() int64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano()/1000 + used.Stime.Nano()/1000
}

type tally struct {
	served, pairs uint64
	waits         map[uint64]uint64
}

func allTasks(locks locker, task *spec) []tally {
	hung := time.AfterFunc(task.limit(), func() { check(errors.New("the run did not end")) })
	defer hung.Stop()
	tallies := make([]tally, task.Tasks)
	started := time.Now()
	var running sync.WaitGroup
	for number := range tallies {
		running.Go(func() {
			done, err := oneTask(locks, task, number, started)
			check(err)
			tallies[number] = done
		})
	}
	running.Wait()
	return tallies
}

func oneTask(locks locker, task *spec, number int, started time.Time) (tally, error) {
	done := tally{waits: map[uint64]uint64{}}
	kept := keptLock(locks, task, number)
	for !task.isOver(started, done.pairs) {
		one := kept
		if one == nil {
			one = locks.lock(fmt.Sprintf("%s:%d:%d", task.prefix(), number, done.pairs))
		}
		asked := time.Now()
		release, err := one.acquire()
		if err != nil {
			return done, err
		}
		waitUs := uint64(time.Since(asked).Microseconds())
		if task.Counter != nil {
			if err := locks.countUp(*task.Counter); err != nil {
				return done, err
			}
		}
		if err := release(); err != nil {
			return done, err
		}
		done.pairs++
		if task.isCounted(started) {
			done.served++
			done.waits[bucket(waitUs)]++
		}
		if task.PauseUs > 0 {
			time.Sleep(time.Duration(rand.Int64N(2*task.PauseUs)) * time.Microsecond)
		}
	}
	return done, nil
}

// keptLock is the lock that a task uses for all pairs, or nil if each pair has its own name.
func keptLock(locks locker, task *spec, number int) lock {
	if name, ok := task.Names["one"]; ok {
		return locks.lock(name)
	}
	if prefix, ok := task.Names["per-task"]; ok {
		return locks.lock(fmt.Sprintf("%s:%d", prefix, number))
	}
	return nil
}

func (s *spec) prefix() string {
	for _, prefix := range s.Names {
		return prefix
	}
	return ""
}

func (s *spec) isOver(started time.Time, pairs uint64) bool {
	if s.Window() {
		return time.Since(started).Milliseconds() >= s.Span.Window.WarmUpMs+s.Span.Window.WindowMs
	}
	return pairs >= s.Span.Pairs.Each
}

func (s *spec) isCounted(started time.Time) bool {
	if !s.Window() {
		return true
	}
	atMs := time.Since(started).Milliseconds()
	return atMs >= s.Span.Window.WarmUpMs && atMs < s.Span.Window.WarmUpMs+s.Span.Window.WindowMs
}

// bucket is the greatest wait of the same bucket: eight binary digits, so less than one percent off.
func bucket(us uint64) uint64 {
	if us < 256 {
		return us
	}
	shift := 0
	for us>>shift >= 256 {
		shift++
	}
	return (us>>shift+1)<<shift - 1
}
