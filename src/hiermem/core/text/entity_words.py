"""The words by which the offline extraction knows a name's kind, or knows it to be none.

The one rule: lists of words and nothing else. They are English and short on purpose: a list decides
only where the form of a name and what stands around it say nothing. What a word in a text is made
to mean is decided by ``entity_names`` and its neighbours.
"""

from __future__ import annotations

from typing import Final

from hiermem.core.text.lexicon import words

#: Words that never begin or end a phrase worth a name.
FUNCTION_WORDS: Final = words(
    """
    a an the and or but nor of to in on at for with by from as if so than then there here into
    about over after before between during up down out off again more most some any each own
    same too very is are was were be been being am do does did has have had having can could
    would should will shall may might must i you he she it we they me him her them my your his
    its our their this that these those what which who whom whose when where why how not no yes
    also just only even still yet ever never always often really quite rather while because
    since until unless though although however both either neither all every few many much
    several such other another else per via i'm i've i'll i'd it's that's there's let's don't
    doesn't didn't can't won't isn't wasn't you're you've you'll we're we've we'll they're
    they've he's she's what's who's how's where's here's aren't weren't couldn't wouldn't
    shouldn't haven't hasn't hadn't s t d m re ll ve etc y'all ya yeah wow hey hi hello oh ah
    okay ok thanks thank please sure lol myself yourself himself herself itself ourselves
    themselves through forward away back across along within without among against toward
    towards around else till upon onto besides beyond unlike despite ago kinda sorta already due
    spoke said told went came took gave saw made knew felt thought heard left kept brought
    """
)
#: Words too common to be a concept by themselves, and that make none with another such word.
GENERIC: Final = words(
    """
    able add added adding additional age ahead alone amount answer anything appropriate approach
    area areas article aspect aspects attempt available bad base based basic beautiful become
    begin behavior benefit best better big bit bits blast body break bring build
    building built bunch bunches call called calls care case cases catch cause chance change
    changes check choice choose clear clearly close code come common complete completely
    connection consider considering content context continue cool core correct correctly couple
    course create created creating current currently custom cute day days deal decide default
    define defined depending detail details develop development difference different directly
    doing done easier easily easy effect end ending ends enough ensure ensures entire error
    errors especially essential etc event events everyone everything everyday evening exact
    example examples excited existing expected experience experiences face fact factor fam fast
    favorite feature features feel feeling feelings feels felt field file files final finally
    find fine first fix focus follow following form format found free friend friends full fun
    function functions further future general generally get getting give given gives giving glad
    go goal goals goes going gone gonna good got great group guess guide guy guys half hand
    handle happen happy hard heart help helped helpful helping helps here high hold home hope
    hour hours huge idea ideas important improve include included includes including information
    initial input inputs inside inspiring instance interesting issue issues item items job
    journey joy keep keeping key kid kids kind kinds know large last lately later latest lead
    learn learned learning least left less let level levels life like likely line lines list
    little live lives load long longer look looked looking looks lot lots love loved lovely low
    made main make makes making man manage management matter matters maybe mean meaning means
    meet mem memories memory message method methods mind minute minutes model moment moments
    month months morning move multiple name names nature near necessary need needed needs new
    next nice night note notes nothing now number numbers object objects old once one ones open
    option options order original others outcome output overall page part particular parts past
    path people perfect period person personal phase photo photos pic pics picture pictures
    piece pieces place places plan plans play point points positive possible potential practice
    practices present pretty previous problem problems process product project projects properly
    proud provide provided provides public purpose put question questions quick quickly ready
    real reason reasons recent recently recommend recommended regular related relevant request
    requests require required requirement requirements reset resource resources response rest
    result results return returned returns right role room root route routes row run running
    safe sample save say scenario second section see seem seen sense series set sets setting
    settings setup share shared short show showing shown shows side similar simple simply single
    situation size small smooth solid solution some somebody someone something sometimes
    somewhere soon sort sound source space special specific spend spent stage stand standard
    start started starting starts state statement stay step steps stop story stories stuff style
    success successful suggest suggestion suitable super support supported supportive sure
    system table take takes taking talk talking task tasks team teams tell term terms test thing
    things think thinking third thought thoughts three thing time timeline times tip tips today
    together tomorrow tonight tool tools top topic topics total track tracking tried try trying
    turn two type types type understand understanding unique update updated updates upon use
    used useful user users uses using usually value values various version versions view visit
    wait walk want wanted wants watch way ways week weekend weekends weeks well whole wide wish
    won wonderful word words work worked working works world worry worth write writing written
    wrong year years yesterday young awesome amazing incredible fantastic gorgeous stunning
    sweet impressive inspired challenges challenge tough strong busy actual quality strength
    passion passionate yep nope whatever anyway implementation function name block blocks line
    snippet command commands directory output outputs response responses access
    action actions guidance advice stop mood vibe vibes peace hug hugs acceptance courage beauty
    comfort freedom emotion emotions voice reminder dream dreams color colors friendship
    serenity struggle struggles sharing supporting bond bonding kindness happiness gratitude
    compassion encouragement dedication motivation inspiration determination bravery confidence
    energy progress truth chat chats smile laughter excitement appreciation understanding
    creativity imagination true self proper further additional easier initial necessary latest
    robust efficient various overall major secure suggest improvements improvement example usage
    tried achieve effort efforts opportunity opportunities impact blessing dose joyful sight
    chance luck news talents talent skill skills strides
    """
)
#: Capitalised words that are no names.
NO_NAME: Final = FUNCTION_WORDS | words(
    """
    mr mrs ms dr prof frau herr madame monsieur signora signor
    step steps part phase note notes example examples overview summary
    conclusion introduction key features feature best practices practice tip tips next first
    second third finally additionally furthermore moreover certainly absolutely great good nice
    awesome congrats congratulations remember make create add use using run install update check
    test set open ensure implement define configure consider review explanation usage here's let
    feel see try start yes no ok sure sorry well now today tomorrow yesterday sounds looks glad
    love hope wish thanks got have had want need take keep give go come look know think say tell
    ask help true false none null todo fixme id ok api url http https get post put delete patch
    html css json yaml xml csv sql ui ux mvp faq pdf crud rest cli ide sdk os ram cpu gpu db utf
    am pm est utc gmt usa error warning info debug week month year day monday total description
    date time title type name value status task tasks goal goals deadline milestone milestones
    sprint week weeks duration section table example output input file line code data user users
    admin assistant system tool main content list item items option options issue issues
    solution problem question answer response request server client frontend backend database
    web app application project framework version testing development production deployment
    security performance documentation integration analytics authentication authorization
    registration login logout session transaction transactions expense expenses income category
    amount dashboard setup configuration implementation design planning research analysis
    everyone everything anything something nothing wow hey hi hello oh ah aww yeah yep yup haha
    lol gotta gonna kids family mom dad grandma grandpa god merry happy totally
    definitely actually basically obviously maybe perhaps also plus despite given instead
    overall regarding based during before after once until seeing being having doing going
    getting looking working thinking talking can't i'm buddy dude bro man guys folks sir madam
    bye woohoo woah whoa yay omg ugh phew cheers any currently recently lately similarly
    specifically alternatively simply it's been isn they've either please seems until whenever
    without within replace delete remove rename move upgrade deploy integrate migrate switch verify
    validate modify enable disable generate convert download upload optimize utilize include
    provide adjust apply submit share always never change copy avoid
    """
)
CALENDAR: Final = words(
    """
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri
    sat sun mondays tuesdays wednesdays thursdays fridays saturdays sundays
    january february march april may june july august september october november
    december jan feb mar apr jun jul aug sep sept oct nov dec spring summer autumn fall winter
    """
)
TECHNOLOGIES: Final = words(
    """
    python flask django fastapi quart werkzeug jinja jinja2 gunicorn uwsgi nginx apache sqlite
    sqlite3 postgres postgresql mysql mariadb mongodb redis memcached elasticsearch opensearch
    kafka rabbitmq celery docker kubernetes helm terraform ansible jenkins github gitlab
    bitbucket git travis circleci aws azure gcp heroku render netlify vercel cloudflare
    javascript typescript node nodejs node.js react react.js angular vue vue.js svelte next.js
    nuxt jquery bootstrap tailwind sass webpack vite babel eslint prettier jest mocha cypress
    selenium playwright pytest unittest tox mypy flake8 pylint black ruff pip virtualenv venv
    conda poetry numpy pandas scipy matplotlib seaborn plotly bokeh sklearn scikit-learn
    tensorflow pytorch keras jax huggingface openai anthropic langchain sqlalchemy alembic
    pydantic marshmallow flask-login flask-migrate flask-wtf flask-sqlalchemy flask-talisman
    flask-limiter flask-caching flask-mail flask-argon2 chart.js d3.js argon2 bcrypt jwt oauth
    oauth2 graphql grpc websocket websockets socket.io linux ubuntu debian fedora
    centos macos windows android ios swift kotlin java scala clojure haskell rust golang ruby
    rails php laravel perl lua elixir erlang c++ c# .net bash zsh powershell vim emacs vscode
    pycharm jupyter colab spark hadoop airflow dbt snowflake bigquery redshift tableau grafana
    prometheus datadog sentry splunk logstash kibana slack discord zoom notion confluence jira
    trello asana figma photoshop illustrator excel powerpoint wordpress shopify stripe paypal
    twilio sendgrid firebase supabase dynamodb cassandra neo4j sqlserver oracle certbot openssl
    postman insomnia swagger openapi markdown latex html5 css3 swiftui flutter unity unreal
    blender arduino raspberry playstation xbox nintendo spotify netflix youtube instagram
    facebook twitter tiktok linkedin whatsapp telegram gmail chatgpt gpt-4 claude gemini llama
    locust jmeter artillery lighthouse dependabot snyk bandit sonarqube swagger-ui render.com
    psycopg2 font-awesome htmx alpine.js express express.js nestjs spring hibernate maven gradle
    npm yarn pnpm
    """
)
#: Countries and large cities, in small letters.
PLACES: Final = frozenset(
    place.strip()
    for place in """
    argentina, australia, austria, belgium, brazil, britain, bulgaria, cambodia, canada, chile,
    china, colombia, croatia, cuba, denmark, ecuador, egypt, england, estonia, ethiopia, finland,
    france, germany, ghana, greece, hungary, iceland, india, indonesia, iran, iraq, ireland, israel,
    italy, jamaica, japan, jordan, kenya, korea, lebanon, malaysia, mexico, morocco, nepal,
    netherlands, new zealand, nigeria, norway, pakistan, peru, philippines, poland, portugal,
    romania, russia, scotland, serbia, singapore, slovakia, slovenia, south africa, spain, sweden,
    switzerland, taiwan, tanzania, thailand, tunisia, turkey, uganda, ukraine, uruguay, venezuela,
    vietnam, wales, zimbabwe, united states, united kingdom, amsterdam, athens, atlanta, austin,
    bali, bangkok, barcelona, beijing, berlin, boston, brussels, budapest, cairo, california,
    cape town, chicago, colorado, copenhagen, dallas, delhi, denver, detroit, dubai, dublin,
    edinburgh, florence, florida, geneva, hawaii, helsinki, hong kong, houston, istanbul, jakarta,
    kyoto, lagos, las vegas, lima, lisbon, london, los angeles, madrid, manila, melbourne, miami,
    milan, minnesota, montreal, moscow, mumbai, munich, nairobi, naples, new york, new york city,
    nyc, oregon, osaka, oslo, paris, philadelphia, phoenix, porto, prague, rio de janeiro, rome,
    san diego, san francisco, santiago, sao paulo, seattle, seoul, shanghai, stockholm, sydney,
    tallinn, texas, tokyo, toronto, vancouver, venice, vienna, warsaw, washington, zurich, europe,
    asia, africa, antarctica, south america, north america, florida keys, alaska, arizona, michigan,
    georgia, virginia, ohio, montana, utah, nevada, tuscany, sicily, provence, bavaria
    """.replace("\n", " ").split(",")
)
NATIONS: Final = words(
    """
    american british english french german italian spanish portuguese dutch swedish norwegian
    danish finnish polish russian chinese japanese korean indian mexican brazilian canadian
    australian irish scottish greek turkish european asian african christian muslim jewish
    catholic buddhist hindu
    """
)
ORGANISATION_ENDS: Final = words(
    """
    inc corp corporation llc ltd gmbh ag company co university college institute school academy
    foundation association agency council committee society bank group labs studio studios
    hospital museum clinic church club league center centre department ministry partners
    ventures fund activists network team orchestra band shelter
    """
)
GIVEN_NAMES: Final = words(
    """
    aaron abigail adam ada adrian ahmed aisha alan alana alex alexander alexandra alexis alice
    alicia alison amanda amber amir amy ana andre andrea andrei andrew andy angela anita ann
    anna anne anthony antonio arthur ashley audrey barbara beatrice ben benjamin beth bill bob
    brad brandon brenda brian bruce calvin carl carla carlos carmen carol caroline carolyn
    catherine cathy charles charlie charlotte chen chloe chris christina christine christopher
    cindy claire clara colin connor craig cynthia dan dana daniel daniela danny dave david
    deborah debra dennis diana diane diego donald donna dorothy doug douglas dylan ed eddie
    edward elena eli elijah elizabeth ella ellen emily emma eric erica erik ernesto ethan eva
    evan evelyn fatima felix fernando fiona frances francesca francis frank fred gabriel gary
    george gerald gina gloria grace greg gregory hannah harold harry hassan heather helen henry
    hugo ian ibrahim ingrid irene isaac isabel isabella ivan jack jacob jake james jamie jan
    jane janet janice jared jasmine jason javier jean jeff jeffrey jen jenna jennifer jenny
    jeremy jerry jesse jessica jill jim jo joan joanna joe joel johan john johnny jolene jon
    jonas jonathan jordan jorge jose joseph josh joshua juan juanita judith judy julia julian
    julie justin karen karl kate katherine kathleen kathryn kathy katie keith kelly ken kenneth
    kevin kim kimberly kyle lara larry laura lauren laurie lea leah lee leo leon leonard liam
    lily linda lisa liz logan lori louis louise lucas lucia lucy luis luke luna lydia madison
    maggie marc marcus margaret maria marie mario marion mark marta martha martin mary mason
    matt matthew maya megan mel melanie melissa mia michael michelle miguel mike mila mohamed
    mohammed molly monica nadia nancy naomi nate natalia natalie nathan neil nick nicholas
    nicole nina noah nora norma oliver olivia omar oscar owen pablo pamela patricia patrick paul
    paula pedro peter phil philip phillip priya rachel ralph ramon raymond rebecca ricardo
    richard rick rita rob robert roberto robin roger ron ronald rosa rose roy russell ruth ryan
    sally sam samantha samir samuel sandra sara sarah scott sean sergei sharon shirley simon
    sofia sonia sophia sophie stacy stan stefan stella stephanie stephen steve steven stuart sue
    susan suzanne sven sylvia tamara tanya tara ted teresa terry theo theresa thomas tim timothy
    tina tom tony tracy tyler valerie vanessa vera veronica vicki victor victoria vincent
    virginia wanda walter wayne wendy wesley will william yolanda yuki yusuf zach zachary zoe
    wyatt
    """
)
