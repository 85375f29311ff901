"""Which words a message may use for what a question calls by its kind.

A question asks for "the countries" or "her pets"; the messages that answer it say Portugal, and
puppy, and share no word with it. That is what makes questions with several answers hard for an
index without a model. This is a small thesaurus of common English for that one purpose: kinds with
members that most people would name, and words of one meaning.

The one rule: general knowledge only. A word is here because it belongs to its kind anywhere, never
because some measured conversation holds it. A text in another language meets no entry and loses
nothing. What a match is worth is decided in ``ranking``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from hiermem.core.search.stem import stem

# One kind a paragraph: the words that a question uses, a colon, the words that a message may use.
# Of a name of two words, the rarer one stands here.
_KINDS: Final = """
city town metropolis: london paris rome berlin madrid barcelona vienna prague dublin amsterdam
brussels lisbon porto athens budapest warsaw krakow stockholm oslo copenhagen helsinki zurich
geneva munich hamburg frankfurt cologne milan venice florence naples edinburgh glasgow manchester
liverpool oxford cambridge moscow kyiv istanbul dubai tokyo kyoto osaka seoul beijing shanghai
singapore bangkok delhi mumbai bangalore jakarta manila hanoi sydney melbourne perth auckland
toronto vancouver montreal ottawa chicago boston seattle dallas houston austin denver miami tampa
atlanta philadelphia pittsburgh phoenix detroit cleveland portland nashville memphis minneapolis
orlando vegas york angeles francisco diego orleans baltimore washington cairo marrakesh nairobi
lagos johannesburg rio paulo lima bogota havana kong city town downtown

country nation abroad overseas: england britain scotland ireland wales france germany italy spain
portugal greece netherlands holland belgium luxembourg switzerland austria poland hungary czech
croatia serbia romania bulgaria sweden norway denmark finland iceland russia ukraine turkey israel
lebanon egypt morocco tunisia kenya tanzania ethiopia ghana nigeria africa india pakistan nepal
china taiwan japan korea thailand vietnam cambodia laos indonesia bali philippines malaysia
singapore australia zealand canada mexico guatemala panama brazil argentina chile peru bolivia
colombia ecuador venezuela cuba jamaica america usa uk country

europe european: england britain scotland ireland wales france germany italy spain portugal greece
netherlands belgium switzerland austria poland hungary czech croatia romania bulgaria sweden norway
denmark finland iceland london paris rome berlin madrid barcelona vienna prague dublin amsterdam
lisbon athens budapest copenhagen stockholm

asia asian: india nepal china taiwan japan korea thailand vietnam cambodia indonesia bali
philippines malaysia singapore tokyo kyoto osaka seoul beijing shanghai bangkok delhi mumbai

state states us usa america american: alabama alaska arizona arkansas california colorado
connecticut delaware florida georgia hawaii idaho illinois indiana iowa kansas kentucky louisiana
maine maryland massachusetts michigan minnesota mississippi missouri montana nebraska nevada
hampshire jersey mexico york carolina dakota ohio oklahoma oregon pennsylvania tennessee texas utah
vermont virginia washington wisconsin wyoming coast midwest pacific

place location destination trip travel vacation holiday visit geographical area region: trip travel
vacation holiday visit tour flight flew journey roadtrip beach mountain lake island park forest
coast castle museum hotel hostel resort abroad city country cruise camp sightseeing airport
backpack england france germany italy spain portugal greece ireland scotland sweden norway iceland
turkey egypt morocco india china japan korea thailand vietnam indonesia bali australia zealand
canada mexico brazil argentina peru london paris rome berlin barcelona prague dublin amsterdam
tokyo kyoto sydney toronto vancouver chicago boston seattle miami york angeles francisco vegas
hawaii california florida texas oregon colorado alaska

nature outdoor outdoors outside: hike camp beach mountain lake river forest wood trail park sunset
ocean sea waterfall garden surf ski kayak canoe climb fish swim bike picnic stargaze raft backpack
snow wildlife

sport sports athletic team: basketball football soccer baseball tennis golf hockey volleyball rugby
cricket swim run surf ski snowboard skate skateboard climb cycle box kickbox gymnastics wrestle
badminton row sail judo karate softball lacrosse handball triathlon marathon

exercise workout fitness training gym: yoga pilates run jog swim gym weight lift cardio boxing
kickboxing aerobics cycling bike stretch hike walk dance zumba crossfit squat treadmill marathon
training workout taekwondo karate climb row

martial fighting: karate judo taekwondo kickboxing boxing jiu jitsu aikido kung wrestling fencing

hobby hobbies activity activities interest pastime leisure fun: paint draw pottery craft knit sew
cook bake garden read write hike camp swim run dance sing photography fish chess puzzle game yoga
guitar piano surf ski bike cycle climb travel movie music volunteer collect workout sculpt blog
woodwork museum picnic beach birdwatching kayak theater concert

instrument: guitar piano violin drum flute clarinet cello bass saxophone trumpet ukulele harp
keyboard banjo trombone viola accordion harmonica

music musical musician band: song band concert album singer guitar piano violin drum rock jazz pop
classical rap blues opera hip festival orchestra tune playlist perform sing

book novel literature reading read: book novel read author series fantasy mystery chapter memoir
biography trilogy story poem library bookshelf fiction paperback writer literature

author writer: book novel read series story poem author

movie film tv television series cinema watch watched seen: movie film watch series show episode
trilogy netflix cinema theater documentary actor director scene comedy thriller drama season anime

game videogame gaming play: nintendo switch xbox playstation console pc chess poker monopoly zelda
minecraft mario tournament fortnite board card puzzle dungeon rpg scrabble tetris pokemon

device platform gadget console: phone laptop computer pc tablet ipad iphone android nintendo switch
xbox playstation tv headset camera smartwatch console

art artwork artistic artist creative: paint draw sketch sculpture sculpt pottery ceramic
photography watercolor acrylic canvas mural clay collage mosaic portrait abstract landscape gallery
exhibit

craft handmade: pottery knit sew crochet quilt clay bowl cup mug candle jewelry origami woodwork
embroidery scrapbook ceramic

writing: book novel story poem poetry script screenplay blog article essay journal diary letter
fiction lyrics

pet pets: dog puppy pup cat kitten kitty rabbit bunny hamster guinea fish turtle tortoise parrot
bird snake lizard gecko horse pony ferret goldfish

dog dogs: puppy pup labrador retriever poodle beagle shepherd bulldog terrier dachshund corgi husky

animal animals wildlife: dog puppy cat kitten horse bird bear lion tiger elephant wolf fox deer
rabbit turtle dolphin whale shark monkey fish snake eagle owl dinosaur penguin butterfly giraffe
cow sheep goat

family relative relatives: mother mom mum father dad parent sister brother son daughter grandma
grandmother grandpa grandfather aunt uncle cousin niece nephew wife husband kid child twin

child children kid kids: son daughter baby toddler boy girl kid child teenager newborn twin

parent parents: mother mom mum father dad

sibling siblings: brother sister twin

spouse partner married marriage relationship romantic dating: husband wife married marry wedding
engaged fiance girlfriend boyfriend single divorce breakup date anniversary partner

friend friends: friend buddy pal colleague neighbor neighbour teammate roommate coworker mate

job occupation profession career work employment: job work career engineer teacher nurse doctor
lawyer banker manager developer designer chef writer accountant consultant firefighter police
artist actor coach scientist electrician mechanic cashier company office hire promotion intern
salary boss employer business

business company venture startup: store shop studio startup company customer brand client investor
launch sell market profit franchise

promote promotion advertise advertising marketing: ad advertise campaign instagram facebook tiktok
social media website flyer poster influencer discount sale blog video fair

food dish meal cuisine eat: pizza pasta rice soup salad sandwich burger steak chicken fish sushi
taco curry bread cheese egg vegetable fruit cake cookie chocolate cream pie dessert breakfast lunch
dinner snack barbecue noodle recipe cook bake restaurant

dessert sweet sweets: cake cupcake cookie pie tart brownie pudding cream ice chocolate muffin donut
candy frosting mousse pastry bake vanilla

recipe recipes cook bake: cake cookie pie tart cream soup salad roast curry pasta stew sauce bake
cook ingredient flour oven dish

drink beverage: coffee tea water juice wine beer milk soda smoothie cocktail lemonade cocoa whiskey

fruit: apple banana orange strawberry raspberry blueberry mango grape peach pear cherry lemon lime
pineapple watermelon coconut avocado

vegetable: carrot potato onion tomato cucumber pepper broccoli spinach cabbage lettuce pea bean
corn

allergy allergic intolerant dietary diet: allergic allergy dairy lactose gluten nut peanut vegan
vegetarian reaction shellfish pollen keto wheat

health medical illness condition disease: sick ill doctor hospital surgery pain headache migraine
fever cold flu asthma diabetes cancer anxiety depression injury therapy medicine medication
diagnosis allergy weight blood pressure heart checkup

injury injure injured hurt accident: injury hurt ankle knee shoulder wrist sprain fracture broke
broken crutches accident fell pain recover crash

car vehicle drive transport: car truck van motorcycle bus train toyota honda ford bmw mercedes audi
volkswagen tesla jeep suv drive accident windshield tire engine

damage damages broken: broke break broken crack accident crash dent flood fire leak wreck

stress destress relax relaxing unwind cope: relax calm therapy therapeutic yoga meditation walk run
read music nature bath peace escape unwind breathe stress

emotion feeling feel mood: happy sad excited proud nervous anxious scared angry grateful thankful
upset relieved lonely overwhelmed joy fear

inspire inspiration inspired motivate: inspire motivate idea influence spark muse role model

volunteer volunteering charity cause community: volunteer charity shelter homeless donate donation
fundraiser food bank kitchen community nonprofit veteran cleanup petition orphanage

event events: party festival parade concert conference workshop wedding fair race marathon show
exhibition gala meetup fundraiser competition ceremony tournament retreat convention expo

competition contest award achievement: win won prize medal trophy award tournament champion
finalist competition contest first record scholarship certificate

gender orientation sexuality: transgender gay lesbian queer bisexual woman man nonbinary trans

religion religious faith spiritual: church mosque temple synagogue pray prayer god faith christian
muslim jewish hindu buddhist bible

school education study degree student: school university college class course degree exam study
student teacher graduate major professor diploma phd master scholarship seminar certification

plan plans planning future goal intend: plan hope goal dream upcoming future someday intend

buy bought purchase purchased shopping: buy bought purchase shop store order ordered

gift present: gift present gave surprise birthday christmas

collectible souvenir memorabilia collection collect: doll toy jersey poster ball card figurine coin
stamp vinyl signed autograph antique trophy

clothing clothes outfit fashion wear: shirt dress shoe jacket hoodie pants jeans skirt sneaker boot
hat scarf suit sweater coat

jewelry jewellery: necklace ring bracelet earring pendant watch

color colour: red blue green yellow orange purple pink black white brown gray grey gold silver

furniture: couch sofa table chair desk bed shelf lamp wardrobe

home house residence apartment: house home apartment condo rent lease mortgage landlord room
kitchen backyard neighborhood

move moved relocate origin hometown: move hometown country born roots immigrate

plant plants flower garden: rose tulip sunflower lily daisy orchid tree tomato basil herb lavender
succulent cactus seed

childhood young younger youth: kid child childhood young grew school little

season: spring summer autumn fall winter

month: january february march april may june july august september october november december

weekday: monday tuesday wednesday thursday friday saturday sunday

language languages: english french german spanish italian portuguese chinese mandarin japanese
korean russian arabic hindi dutch swedish polish turkish

programming code stack framework library tool technology: python java javascript typescript rust go
ruby php swift kotlin react vue angular svelte django flask fastapi node express rails spring
laravel docker kubernetes git github html css bootstrap numpy pandas pytorch tensorflow redis kafka

database storage: postgresql postgres mysql mariadb sqlite mongodb redis sql schema table index
query orm migration

deploy deployment hosting cloud server: aws azure gcp heroku render docker kubernetes nginx
gunicorn vercel netlify server pipeline ci terraform

security secure authentication login: password login auth jwt token csrf xss hash bcrypt encryption
session oauth https lockout permission role sanitize

test testing: unittest pytest jest test coverage assert mock selenium cypress integration

performance speed latency optimize optimization: latency cache response slow fast load throughput
index ms

error bug issue exception: error bug exception fail failure crash traceback debug typeerror
keyerror 404 500

money budget finance financial cost price expense: dollar budget price cost pay paid income salary
save saving expense invest loan debt tax rent bank fund euro

mathematics math: algebra geometry calculus triangle probability statistics equation theorem proof
fraction integral derivative matrix

legal law: contract lawyer attorney testament estate court patent license agreement clause copyright
trademark
"""

# Words of one meaning, a set a line: forms that stemming keeps apart, and everyday synonyms.
_SYNONYMS: Final = """
kid child
mom mother mum
dad father
grandma grandmother
grandpa grandfather
film movie
photo picture pic image photograph
purchase buy bought
begin began begun start
job work career
vacation holiday
trip travel journey
store shop
clothing clothes cloth apparel
speak spoke spoken talk
destress relax unwind
deadline due
meeting appointment
bike bicycle cycling
tv television
win won victory
sick ill illness
hurt injure injury
teach taught teacher
give gave given
write wrote written
run ran
go went gone
see saw seen
eat ate eaten
get got gotten
meet met
feel felt
make made
take took taken
find found
lose lost
leave left
tell told
think thought
grow grew grown
drive drove driven
fly flew flown
choose chose chosen choice decide decision pick select settle
break broke broken
swim swam
sing sang sung song
build built
sell sold
learn learnt
bring brought
catch caught
spend spent
fall fell fallen
wear wore worn
know knew known
draw drew drawn
ride rode ridden
marry marriage wedding
die died death dead
apartment flat
dinner supper
doctor physician
university college
exam test quiz
recommend suggest advice advise
increase raise
decrease reduce lower
error bug
app application
timeline schedule calendar
car automobile
phone mobile cellphone
lawyer attorney
glad happy
scared afraid
angry mad
big large huge
"""


@lru_cache(maxsize=1)
def _kinds() -> Mapping[str, frozenset[str]]:
    """Give, for each term that names a kind, the terms of its members."""
    found: dict[str, set[str]] = defaultdict(set)
    for paragraph in _KINDS.strip().split("\n\n"):
        names, things = paragraph.split(":")
        stems = {stem(word) for word in things.split()}
        for name in names.split():
            found[stem(name)] |= stems
    return {name: frozenset(stems - {name}) for name, stems in found.items()}


@lru_cache(maxsize=1)
def _synonyms() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for line in _SYNONYMS.strip().splitlines():
        stems = {stem(word) for word in line.split()}
        for one in stems:
            found[one] |= stems - {one}
    return {one: frozenset(stems) for one, stems in found.items()}


def members(term: str) -> frozenset[str]:
    """Give the terms of what belongs to the kind that ``term`` names.

    >>> "taekwondo" in members(stem("martial")), members("xyzzy")
    (True, frozenset())
    """
    return _kinds().get(term, frozenset())


def synonyms(term: str) -> frozenset[str]:
    """Give the terms that mean the same as ``term``, without it.

    >>> sorted(synonyms(stem("mother")))
    ['mom', 'mum']
    """
    return _synonyms().get(term, frozenset())
