package typeset

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// treatments are of plants and beetles that do not exist.
var treatments = []struct {
	name string
	head func(*rand.Rand) string
	of   [][]string // the descriptions' sentences
}{
	{"binomial", binomial, english},
	{"binomial and author", authored, english},
	{"the same in capitals", func(r *rand.Rand) string { return strings.ToUpper(authored(r)) }, english},
	{"number, binomial and author", func(r *rand.Rand) string { return fmt.Sprintf("%d. %s", 1+r.IntN(99), authored(r)) }, english},
	{"author and year", func(r *rand.Rand) string { return fmt.Sprintf("%s, %d", authored(r), 1800+r.IntN(150)) }, english},
	{"citation", cited, english},
	{"sp. nov.", func(r *rand.Rand) string { return authored(r) + ", sp. nov." }, english},
	{"citation, German", cited, german},
	{"citation, French", cited, french},
	{"citation, Russian", cited, russian},
}

func pick(r *rand.Rand, of []string) string { return of[r.IntN(len(of))] }

var (
	genera   = []string{"Velodia", "Parnessa", "Ocrinus", "Tumbrella", "Hestalis", "Gorvinia", "Lasmodes", "Quendera", "Broxia", "Silvanthe", "Metopleura", "Nardinus", "Zelotypa", "Fendleria", "Caromys"}
	stems    = []string{"alb", "nigr", "mont", "palustr", "grac", "hirsut", "longic", "rotund", "variab", "silvat", "pallid", "rugos", "macul", "tenu"}
	endings  = []string{"ensis", "icola", "ata", "ella", "osa", "oides", "ifera", "ina", "ula", "aris"}
	people   = []string{"Korvin", "Lundgaard", "Petresco", "Ashdown", "Marquand", "Oyelaran", "Thistlewood", "de Brand", "Vasquin", "Holub & Reyn", "Tamsin", "Ferrer"}
	journals = []string{"Ann. Mus. Brand.", "J. Nat. Sci. Holm", "Bull. Soc. Reyn", "Act. Hort. Vasq.", "Proc. Linn. Ashd."}
	english  = [][]string{{ // of a plant
		"Erect perennial herb, 20–45 cm tall, sparingly branched above.", "Stem terete, green or tinged with purple, finely pubescent when young.",
		"Leaves alternate, lanceolate, 3–7 × 0.8–1.5 cm, base cuneate, apex acute.", "Petiole 4–9 mm long, channelled above, glabrous.",
		"Inflorescence a terminal raceme of 6–14 flowers, bracts linear, 2–3 mm.", "Sepals five, ovate, 4–5 mm long, ciliate along the margin.",
		"Petals white with violet veins, obovate, 9–12 mm, emarginate.", "Stamens ten, filaments unequal, anthers yellow, 1 mm long.",
		"Ovary superior, two-celled, style 3 mm, stigma capitate.", "Capsule globose, 5 mm in diameter, dehiscing by four valves.", "Seeds numerous, reniform, dark brown, minutely tuberculate.",
	}, { // of a beetle
		"Length 6.2–7.9 mm, width 2.5–3.1 mm.", "Body elongate, black, with a faint bronze lustre, antennae and tarsi reddish.",
		"Head transverse, eyes large, strongly convex, frons sparsely punctate.", "Antennae reaching the base of the elytra, third segment twice as long as second.",
		"Pronotum 1.3 times as wide as long, sides rounded, hind angles acute.", "Scutellum triangular, smooth.", "Elytra parallel-sided, striae deeply impressed, intervals flat, shining.",
		"Legs slender, fore tibiae weakly curved, claws simple.", "Abdomen finely shagreened, last sternite notched in the male.", "Aedeagus in lateral view bent, apex truncate, parameres short.",
	}}
	german = [][]string{{
		"Ausdauernde Staude, 20–45 cm hoch, oben spärlich verzweigt.", "Stängel rund, grün oder rötlich überlaufen, jung fein behaart.", "Blätter wechselständig, lanzettlich, 3–7 cm lang, am Grund keilförmig.",
		"Blüten in endständigen Trauben, weiß mit violetten Adern.", "Kelchblätter fünf, eiförmig, am Rand bewimpert.", "Frucht eine kugelige Kapsel, mit vier Klappen aufspringend.", "Samen nierenförmig, dunkelbraun, fein warzig.",
	}}
	french = [][]string{{
		"Herbe vivace, dressée, haute de 20 à 45 cm, peu ramifiée au sommet.", "Tige cylindrique, verte ou teintée de pourpre, pubescente dans la jeunesse.", "Feuilles alternes, lancéolées, longues de 3 à 7 cm, cunéiformes à la base.",
		"Fleurs en grappes terminales, blanches, veinées de violet.", "Sépales cinq, ovales, ciliés sur les bords.", "Capsule globuleuse, large de 5 mm, s'ouvrant par quatre valves.", "Graines réniformes, brunes, finement tuberculées.",
	}}
	russian = [][]string{{
		"Многолетнее растение, 20–45 см высотой, вверху слабо ветвистое.", "Стебель округлый, зелёный, в молодости тонко опушённый.", "Листья очередные, ланцетные, 3–7 см длиной, в основании клиновидные.",
		"Цветки в верхушечных кистях, белые с фиолетовыми жилками.", "Чашелистиков пять, яйцевидных, по краю реснитчатых.", "Коробочка шаровидная, раскрывается четырьмя створками.", "Семена почковидные, тёмно-бурые.",
	}}
	places = []string{"Grows in open woods on limestone, 400 to 900 m.", "Collected under bark of dead trees in spring.", "Known from two localities near the coast.", "In wet meadows, rare, flowering in June."}
)

func binomial(r *rand.Rand) string {
	return pick(r, genera) + " " + pick(r, stems) + pick(r, endings)
}

func authored(r *rand.Rand) string { return binomial(r) + " " + pick(r, people) }

func cited(r *rand.Rand) string {
	return fmt.Sprintf("%s, %s %d: %d. %d.", authored(r), pick(r, journals), 1+r.IntN(60), 1+r.IntN(400), 1850+r.IntN(150))
}

// treatment is a head, a description of seven sentences and a place, in lines of 84
// bytes with blank lines between.
func treatment(r *rand.Rand, head string, sentences [][]string) []line {
	var said []string
	of := sentences[r.IntN(len(sentences))]
	for range 7 {
		said = append(said, pick(r, of))
	}
	between := []byte("\n\n")
	return fill([]line{
		{between, []byte(head), "Nomenclature"}, {between, []byte(strings.Join(said, " ")), "Description"}, {between, []byte(pick(r, places)), "Misc-exposition"},
	}, 84)
}

// BenchmarkInvented tells which share of the lines of each label a model finds on pages
// that no volume of the corpus is like: three drawings of 100 treatments, 80 steps of
// a key, 200 names or 80 references.
func BenchmarkInvented(b *testing.B) {
	judge := newJudge(b)
	run := func(name string, invent func(*rand.Rand) []line) {
		b.Run(name, func(b *testing.B) {
			right, all := map[string]float64{}, map[string]float64{}
			for b.Loop() {
				clear(right)
				clear(all)
				for seed := range uint64(3) {
					lines := invent(rand.New(rand.NewPCG(seed, 0)))
					for i, class := range judge.label(b, lines) {
						label := lines[i].label
						all[label]++
						if class == judge.config.Class(label) {
							right[label]++
						}
					}
				}
			}
			for label, n := range all {
				b.ReportMetric(100*right[label]/n, "%"+label)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	for _, kind := range treatments {
		run(kind.name, func(r *rand.Rand) (lines []line) {
			for range 100 {
				lines = append(lines, treatment(r, kind.head(r), kind.of)...)
			}
			return lines
		})
	}
	list := func(name, label string, n int, item func(*rand.Rand, int) string) {
		run(name, func(r *rand.Rand) (lines []line) {
			for i := range n {
				lines = append(lines, line{[]byte("\n"), []byte(item(r, i)), label})
			}
			return lines
		})
	}
	key := func(leader string) func(*rand.Rand, int) string {
		return func(r *rand.Rand, i int) string {
			said := strings.TrimSuffix(pick(r, english[i/40%2]), ".")
			if r.IntN(2) == 0 {
				return fmt.Sprintf("%d. %s%s%d", i/2+1, said, leader, i/2+2)
			}
			return fmt.Sprintf("%d. %s%s%s", i/2+1, said, leader, binomial(r))
		}
	}
	list("key with leaders", "Misc-exposition", 80, key(" ...... "))
	list("key without leaders", "Misc-exposition", 80, key(" "))
	list("checklist, binomials", "Nomenclature", 200, func(r *rand.Rand, _ int) string { return binomial(r) })
	list("checklist with authors", "Nomenclature", 200, func(r *rand.Rand, _ int) string { return authored(r) })
	list("references, Author. Year. Title. Journal", "Misc-exposition", 80, func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("%s, %c. %d. Notes on %s of the north. – %s %d: %d–%d.", pick(r, people), 'A'+rune(r.IntN(26)), 1850+r.IntN(150), pick(r, genera), pick(r, journals), 1+r.IntN(60), 1+r.IntN(99), 100+r.IntN(99))
	})
	list("references, Author & Author, Journal", "Misc-exposition", 80, func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("%s & %s, %s %d: %d–%d. %d.", pick(r, people), pick(r, people), pick(r, journals), 1+r.IntN(60), 1+r.IntN(99), 100+r.IntN(99), 1850+r.IntN(150))
	})
}
