package lora

import ("testing";"time")

func FuzzSlow(f *testing.F) {
	f.Add([]byte(`{"peft_type":"LORA","target_modules":"(?!x).*","rank_pattern":{"(?P<a>x)(?P=a)":2},"trainable_token_indices":{"e":[1]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s:=time.Now()
		c, err := ParseConfig(data)
		if err != nil { return }
		valid := c.Validate()
		d1:=time.Since(s)
		if d1>300*time.Millisecond { t.Fatal("validate",d1) }
		s=time.Now()
		if valid == nil {
			_, _ = NewPlan(c, Model{Type: "llama", Modules: []Module{{Name: "model.layers.0.q_proj", Kind: Linear, In: 3, Out: 2}}})
		}
		if time.Since(s)>300*time.Millisecond { t.Fatal("plan",time.Since(s)) }
	})
}
func FuzzSlowP(f *testing.F) {
	f.Add(`.*\.(?!o_proj|down_proj)[a-z]+_proj`, "model.layers.0.q_proj")
	f.Fuzz(func(t *testing.T, source, name string) {
		s:=time.Now()
		p, err := fullMatch(source)
		if time.Since(s)>300*time.Millisecond { t.Fatal("compile",time.Since(s)) }
		if err!=nil {return}
		if p.backtr!=nil {p.backtr.MatchTimeout = 20 * time.Millisecond}
		p.match(name)
		if time.Since(s)>600*time.Millisecond { t.Fatal("match",time.Since(s)) }
	})
}
